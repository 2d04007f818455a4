"""The module that a connector imports, in its process only: compatible with the public Connector SDK."""

from . import form_field
from .configuration_form import ConfigurationForm, Test
from .connector import Connector
from .files import FileUpload
from .logs import Logging
from .operations import Operations

__version__ = "2.13.1"
__all__ = ["ConfigurationForm", "Connector", "FileUpload", "Logging", "Operations", "Test", "form_field"]
