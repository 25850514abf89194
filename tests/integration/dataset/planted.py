# SPDX-License-Identifier: Apache-2.0
"""Plants files next to a database, and contents in it, as another user could: hot journals, super-journals, endless views."""
import os
import sqlite3
import struct

MAGIC, PAGE_OF_SUPER = bytes.fromhex("d9d505f920a163d7"), 0x40000000
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT "


def page_bytes(path):
    with open(path, "rb") as file:
        return int.from_bytes(file.read(18)[16:], "big")


def plant_journal(path, super_journal=None, page=None):
    """Plants a journal that SQLite plays back into a database, as a killed writer leaves it. It has the first page, unchanged or as given,
    and the name of a super-journal, if given."""
    size = page_bytes(path)
    with open(path, "rb") as file:
        first = page or file.read(size)
        n_pages = os.path.getsize(path) // size
    checksum = (7 + sum(first[i] for i in range(size - 200, 0, -200))) & 0xffffffff
    text = MAGIC + struct.pack(">5I", 1, 7, n_pages, 512, size)
    text = text.ljust(512, b"\0") + struct.pack(">I", 1) + first + struct.pack(">I", checksum)
    if super_journal:
        name = os.fsencode(super_journal)
        text += struct.pack(">I", PAGE_OF_SUPER // size + 1) + name + struct.pack(">2I", len(name), sum(name)) + MAGIC
    with open(path + "-journal", "wb") as file:
        file.write(text)


def hide_behind_view(path, table):
    """Replaces the table by a view whose rows never end."""
    with sqlite3.connect(path) as db:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        db.execute(f"DROP TABLE {table}")
        db.execute(f"CREATE VIEW {table}({', '.join(columns)}) AS {ENDLESS}"
                   + ", ".join(["i"] * len(columns)) + " FROM n")
    db.close()


def compute_column(path, table, column):
    """Replaces a column by one whose every read takes a very long computation."""
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = ?",
                   (column, f"{column} GENERATED ALWAYS AS (hex(zeroblob(100000000))), was_{column}", table))
    db.close()


def share_children(path, table, levels=12, cells=100):
    """Makes the pages of a table share their children, so that it seems to have cells ** levels times as many rows."""
    with sqlite3.connect(path) as db:
        root = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
    db.close()
    size = page_bytes(path)
    with open(path, "r+b") as file:
        file.seek((root - 1) * size)
        below, n_pages = file.read(size), os.path.getsize(path) // size
        pages = [root, *range(n_pages + 1, n_pages + levels + 1)]
        for page, child in zip(pages, pages[1:]):
            at = size - cells * 5
            text = struct.pack(">BHHHBI", 5, 0, cells, at, 0, child)
            text += b"".join(struct.pack(">H", at + 5 * i) for i in range(cells))
            file.seek((page - 1) * size)
            file.write(text.ljust(at, b"\0") + struct.pack(">IB", child, 1) * cells)
        file.seek((pages[-1] - 1) * size)
        file.write(below)
        file.seek(28)
        file.write(struct.pack(">I", n_pages + levels))


def disguise_view(path, table):
    """Does hide_behind_view(), but the list of tables still calls it a table."""
    hide_behind_view(path, table)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET type = 'table' WHERE name = ?", (table,))
    db.close()
