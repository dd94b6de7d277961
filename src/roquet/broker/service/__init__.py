"""Background services: held pulls, registration, flow control, housekeeping."""
