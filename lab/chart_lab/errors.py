"""What can go wrong in the lab, each with a sentence for the person at the terminal."""


class LabError(Exception):
    """The lab cannot do what was asked; the text says why and what would help."""


class UnfinishedError(LabError):
    """The time that was given is over; what was measured is kept, and `--resume` goes on (exit status 75)."""


class LateError(LabError):
    """The machine was too busy to keep an experiment's schedule: nothing was measured, and it is worth another try."""


class NoisyMachineError(LabError):
    """The machine is too busy for a measurement to mean anything (exit status 75)."""
