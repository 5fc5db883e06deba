"""The validators of what arrived find what they are there for; those of order are tried in tests/workloads."""

import msgspec

from tidegate.model.event import Ddl, Update
from tidegate.testing import validators
from tidegate.testing.contract.stories import around_ddl, shop
from tidegate.testing.script import Script, put, remove


def story() -> Script:
    """A row that comes, changes and goes, and one beside it."""
    one = Script()
    one.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(9))")
    one.commit(put("shop.t", id=1, v="a"))
    one.commit(put("shop.t", id=1, v="b"), put("shop.t", id=2, v="x"))
    one.commit(remove("shop.t", id=1))
    return one


def test_a_true_story_has_no_faults() -> None:
    """Of what happened nobody complains, whatever DDLs are among it."""
    for one in (story(), shop(), around_ddl("swap names"), around_ddl("exchange partition")):
        assert list(validators.chained(one.events)) == []
        assert list(validators.in_order(one.events)) == []
        assert list(validators.unlike(one.tables(one.ts), validators.rebuilt([one.events]))) == []


def test_a_broken_chain_is_found() -> None:
    """An image before a change that is not the one after the change before it; a DDL begins the chain anew."""
    create, first, second, *rest = story().events
    assert isinstance(second, Update)
    wrong = msgspec.structs.replace(second, before=(1, "z"))
    comment = Ddl(schema="shop", table="t", query="ALTER TABLE shop.t COMMENT = 'x'", commit_ts=first.commit_ts)

    assert len(list(validators.chained([create, first, wrong, *rest]))) == 1
    assert list(validators.chained([create, first, comment, wrong, *rest])) == []


def test_images_that_are_lost_invented_or_repeated_are_found() -> None:
    """Each by its validator, and by no other."""
    rows = story().rows(story().ts)
    happened = validators.images_of(rows)
    strange = msgspec.structs.replace(rows[0], after=(1, "z"))
    for arrived, found in (
        (rows, (0, 0, 0)),
        (rows[1:], (1, 0, 0)),
        ([*rows, rows[0]], (0, 0, 1)),
        ([strange, *rows], (0, 1, 1)),
    ):
        images = validators.images_of(arrived)
        judges = (validators.untold, validators.invented, validators.repeated)
        assert tuple(len(list(judge(happened, images))) for judge in judges) == found


def test_tables_that_differ_are_found() -> None:
    """A table that is missing, one too many, a row that is missing and one that is there twice."""
    one = {"shop.t": [{"id": 1}, {"id": 2}]}

    assert list(validators.unlike(one, {"shop.t": [{"id": 2}, {"id": 1}]})) == []
    assert list(validators.unlike(one, {})) == ["table shop.t is missing"]
    assert list(validators.unlike({}, one)) == ["table shop.t does not exist upstream"]
    assert list(validators.unlike(one, {"shop.t": [{"id": 1}]})) == ["table shop.t lacks {'id': 2}"]
    assert list(validators.unlike(one, {"shop.t": [*one["shop.t"], {"id": 1}]})) == ["table shop.t has {'id': 1}"]
