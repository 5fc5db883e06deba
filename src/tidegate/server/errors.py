"""Errors of the server's answers, with TiCDC's codes; the HTTP status of each follows from its code.

    TidegateError
    +- InputError
       +- ApiParamInvalid          a word of a request
       +- ChangefeedMissing, ChangefeedExists
       +- UpdateRefused            not in this state, or nothing to change
       +- TargetBelowStart, StartBelowHistory
    +- EnvironmentFault
       +- ServerNotReady, NotOwner    another server answers, or soon one will     LATER
       +- FeedCrashed              a defect of ours ended a changefeed

Source: TiCDC, pkg/errors/cdc_errors.go.
"""

from tidegate.model.errors import EnvironmentFault, InputError, Retry


class ApiParamInvalid(InputError):
    """A parameter or body of a request is wrong."""

    code = "CDC:ErrAPIInvalidParam"


class ChangefeedMissing(InputError):
    """There is no changefeed of that name."""

    code = "CDC:ErrChangeFeedNotExists"


class ChangefeedExists(InputError):
    """A changefeed of that name is there, whatever its state."""

    code = "CDC:ErrChangeFeedAlreadyExists"


class UpdateRefused(InputError):
    """The changefeed is not in a state in which that can be done, or nothing would change."""

    code = "CDC:ErrChangefeedUpdateRefused"


class TargetBelowStart(InputError):
    """The target ts is not above the start ts."""

    code = "CDC:ErrTargetTsBeforeStartTs"


class StartBelowHistory(InputError):
    """The source no longer has what lies above the start ts."""

    code = "CDC:ErrStartTsBeforeGC"


class ServerNotReady(EnvironmentFault):
    """The server has not joined yet, or is about to stop."""

    code = "CDC:ErrServerIsNotReady"
    retry = Retry.LATER


class NotOwner(EnvironmentFault):
    """Another server owns the changefeeds. A run of this one has nothing to wait for."""

    code = "CDC:ErrNotOwner"


class FeedCrashed(EnvironmentFault):
    """A changefeed ended by an error that is none of ours: a defect."""

    code = "CDC:ErrChangefeedUnretryable"
