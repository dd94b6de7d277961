"""One module for each family of requests of producers and consumers."""
