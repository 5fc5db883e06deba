"""The server as a web application.

    Entrance (authentication, limits, forwarding, log) ──► FastAPI: api.py ──► /openapi.json
                                                                    dashboard.py: the page at /

There is no page of API documentation: it would load scripts from elsewhere.
"""

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError

from tidegate.config.uri import declare
from tidegate.model.errors import TidegateError
from tidegate.server.answers import config_schema
from tidegate.server.api import ChangefeedRoutes, ServerRoutes, identity_of
from tidegate.server.dashboard import DashboardRoutes, PageRoutes
from tidegate.server.entrance import Entrance
from tidegate.server.old_api import OldRoutes
from tidegate.server.routes import REPLICA_CONFIG, on_defect, on_error, on_unknown_path, on_wrong_parameter
from tidegate.server.server import Server


def application(server: Server) -> Entrance:
    """Return the application of a server. ConfigError for files of users or tokens that cannot be read."""
    return Entrance(_api(server), server)


def _api(server: Server) -> FastAPI:
    identity = identity_of(server)
    api = FastAPI(
        title="Tidegate",
        description="TiCDC's OpenAPI v2, served by Tidegate",
        version=version("tidegate"),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            TidegateError: on_error,
            RequestValidationError: on_wrong_parameter,
            404: on_unknown_path,
            405: on_unknown_path,
            Exception: on_defect,
        },
    )
    servers = ServerRoutes(identity)
    for routes in (ChangefeedRoutes(identity), servers, OldRoutes(identity), DashboardRoutes(identity), PageRoutes()):
        api.include_router(routes.router())
    api.include_router(servers.probes())
    _describe(api.openapi())
    return api


def _describe(schema: dict[str, Any]) -> None:
    """Complete the OpenAPI schema: an invalid parameter answers 400, and `replica_config` is defined once.

    The queries that it names are shown in the log."""
    schema["components"]["schemas"][REPLICA_CONFIG] = config_schema()
    for path in schema["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            declare(each["name"] for each in operation.get("parameters", ()) if each["in"] == "query")
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)
