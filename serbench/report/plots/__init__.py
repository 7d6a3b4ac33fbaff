"""Plots of stored runs, for a page on screen and for print."""
