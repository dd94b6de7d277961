"""The ext fields of each request and response as typed values.

One module per family of requests; ``base`` converts, ``table`` says which code has which headers.
Names are upstream's, except that requests whose headers are alike share one type.
"""
