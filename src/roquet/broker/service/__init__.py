"""What runs besides requests: waiting pulls, registration, flow control, housekeeping."""
