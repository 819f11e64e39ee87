"""Sensors written in Python; each is a program that speaks the same protocol as those in sensors/."""
