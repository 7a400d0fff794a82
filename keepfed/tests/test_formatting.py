from keepfed.formatting import axis, duration, percent, plural, size, wrap

MS = 1_000_000


def test_values_are_formatted_with_units():
    for said, text in (
        (percent(0), "0 %"),  # only exactly 0
        (percent(0.001), "< 1 %"),
        (percent(0.376), "38 %"),
        (percent(0.999), "> 99 %"),
        (percent(1), "100 %"),  # only exactly 1
        (duration(0), "0 s"),
        (duration(42_000), "42 µs"),
        (duration(38 * MS), "38 ms"),
        (duration(2.41e9), "2.41 s"),
        (plural(1, "gap"), "1 gap"),
        (plural(2, "batch"), "2 batches"),
        (plural(1234, "gap"), "1,234 gaps"),
        (size(0), "0 B"),
        (size(7_200), "7.2 kB"),
        (size(-38e6), "-38 MB"),
        (size(1.2e9), "1.20 GB"),
    ):
        assert said == text


def test_axis_labels_are_round_times_in_one_unit():
    assert list(axis(2_210 * MS, 8).values()) == ["0", "0.5 s", "1.0 s", "1.5 s", "2.0 s"]
    assert list(axis(90 * MS, 5).values()) == ["0", "20 ms", "40 ms", "60 ms", "80 ms"]


def test_names_of_others_cannot_control_the_terminal():
    assert wrap("a\x1b]0;title\x07b\x9b31m\x7f\n\tc ä 李") == "a?]0;title?b?31m?\n\tc ä 李"
