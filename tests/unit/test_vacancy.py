"""What the number of a new node tells about those in front of it, and what it does not."""

import pytest

from zkcoord.core.vacancy import FOLDERS_MAX, Moment, Vacancies, Vacancy, nobody_in_front

EPOCH = 1 << 32


def left(sequence: int, removed: Moment | None) -> Vacancy:
    vacancy = Vacancy(sequence, expected=False)
    vacancy.removed = removed
    return vacancy


def test_the_first_of_a_folder_has_nobody_in_front() -> None:
    assert nobody_in_front(None, 0, Moment(9, 1))
    assert not nobody_in_front(None, 1, Moment(9, 1))


@pytest.mark.parametrize(
    ("sequence", "created", "alone"),
    [
        (6, Moment(101, 8), True),
        (7, Moment(101, 8), False),  # somebody came in between
        (5, Moment(101, 8), False),  # another folder of the same name
        (6, Moment(107, 8), True),
        (6, Moment(108, 8), False),  # time enough to make the folder anew, and six nodes in it
        (6, Moment(109, 10), True),  # two of those transactions were our own, elsewhere
        (6, Moment(110, 10), False),
        (6, Moment(EPOCH + 101, 8), False),  # another leader counts them from the beginning
    ],
)
def test_the_next_number_tells_while_no_folder_can_have_come_in_between(
    sequence: int, created: Moment, alone: bool
) -> None:
    assert nobody_in_front(left(5, Moment(100, 7)), sequence, created) is alone


def test_a_removal_that_is_not_known_tells_nothing() -> None:
    assert not nobody_in_front(left(5, None), 6, Moment(101, 8))


def test_numbers_at_the_end_of_the_range_tell_nothing() -> None:
    last = 2**31 - 2
    assert not nobody_in_front(left(last, Moment(100, 7)), last + 1, Moment(101, 8))


def test_knowledge_is_taken_once_and_completed_by_a_removal_that_comes_later() -> None:
    vacancies = Vacancies()
    vacancies.created(10)
    vacancies.held("/locks/a", "/locks/a/x.0", 0, expected=True)
    vacancy = vacancies.take("/locks/a")
    assert vacancy is not None
    assert vacancies.take("/locks/a") is None
    assert not nobody_in_front(vacancy, 1, Moment(12, 2))
    vacancies.removed("/locks/a/x.0", 11)
    assert nobody_in_front(vacancy, 1, vacancies.created(12))
    assert len(vacancies) == 0


def test_a_node_that_was_gone_leaves_no_knowledge() -> None:
    vacancies = Vacancies()
    vacancies.held("/locks/a", "/locks/a/x.0", 0, expected=True)
    vacancies.gone("/locks/a/x.0")
    vacancies.removed("/locks/a/x.0", 11)
    assert not nobody_in_front(vacancies.take("/locks/a"), 1, vacancies.created(12))


def test_so_many_folders_are_remembered_and_no_more() -> None:
    vacancies = Vacancies()
    for number in range(FOLDERS_MAX + 5):
        node = f"/locks/{number}/x.0"
        vacancies.held(f"/locks/{number}", node, 0, expected=True)
        vacancies.removed(node, number)
    assert len(vacancies) == FOLDERS_MAX
    assert vacancies.take("/locks/4") is None
    assert vacancies.take("/locks/5") is not None
