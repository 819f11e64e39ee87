"""What can go wrong in the lab, each with a sentence for the person at the terminal."""


class LabError(Exception):
    """The lab cannot do what was asked; the text says why and what would help."""


class NoisyMachineError(LabError):
    """The machine is too busy for a measurement to mean anything (exit status 75)."""
