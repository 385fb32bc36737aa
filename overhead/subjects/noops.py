"""A benchmark of many methods that do nothing, to measure what each further method costs."""

from benchmarks.python.calibration import Calibration


class Noops(Calibration):
    """`noop` under many names, so that no trial is a second trial of another method.

    They are written down, as people's methods are: a module is imported once more where a name that
    was asked for is not in its source.
    """

    noop_0 = noop_1 = noop_2 = noop_3 = noop_4 = noop_5 = noop_6 = Calibration.noop
    noop_7 = noop_8 = noop_9 = noop_10 = noop_11 = noop_12 = noop_13 = Calibration.noop
    noop_14 = noop_15 = noop_16 = noop_17 = noop_18 = noop_19 = noop_20 = Calibration.noop
    noop_21 = noop_22 = noop_23 = noop_24 = noop_25 = noop_26 = noop_27 = Calibration.noop
    noop_28 = noop_29 = noop_30 = noop_31 = noop_32 = noop_33 = noop_34 = Calibration.noop
    noop_35 = noop_36 = noop_37 = noop_38 = noop_39 = noop_40 = noop_41 = Calibration.noop
    noop_42 = noop_43 = noop_44 = noop_45 = noop_46 = noop_47 = noop_48 = Calibration.noop
    noop_49 = Calibration.noop
