"""The GPU's code object in a library: an ELF file in the ELF file."""
import struct


def find(library, machine):
    """The bytes of `library` from its code object for that machine (e_machine of its header) on; None: there is none."""
    with open(library, "rb") as f:
        data = f.read()
    at = 0
    while (at := data.find(b"\x7fELF", at + 1)) > 0:
        if struct.unpack_from("<H", data, at + 18)[0] == machine:
            return data[at:]
    return None
