from tests.folder_table import Phase, table


def test_tests_and_seconds_are_totalled_by_folder() -> None:
    phases = [
        Phase("tests/golden/test_replay.py::test_a", 1.0),
        Phase("tests/unit/store/deep/test_x.py::TestIt::test_b[1]", 0.25),
        Phase("tests/unit/store/test_y.py::test_c", 1.5),
        Phase("tests/unit/store/test_y.py::test_c", 0.5),
    ]
    assert list(table(phases)) == [
        " tests   seconds  folder",
        "     2       2.2  tests/unit/store",
        "     1       1.0  tests/golden",
        "     3       3.2  in all",
    ]


def test_a_run_without_tests_has_an_empty_table() -> None:
    assert list(table([])) == [" tests   seconds  folder", "     0       0.0  in all"]
