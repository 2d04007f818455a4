"""The module that a connector imports, in its process only: compatible with the public Connector SDK."""

from . import form_field
from .configuration_form import ConfigurationForm
from .connector import Connector
from .file_upload import ByteStream, FileUpload
from .logs import Logging
from .operations import Operations
from .test import Test

__version__ = "2.13.1"
__all__ = ["ByteStream", "ConfigurationForm", "Connector", "FileUpload", "Logging", "Operations", "Test", "form_field"]
