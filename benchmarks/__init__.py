"""Measurements, as ratios of two things done in the same run."""
