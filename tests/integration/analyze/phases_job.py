# SPDX-License-Identifier: Apache-2.0
"""Steps with named ranges, by NVTX (a stand-in library) and by USDT markers, and the job's own clock of them.

phases_job.py NVTX USDT USDT_WITH_SEMAPHORES LIBDIESEL STEPS
"""
import ctypes
import json
import sys
import time


class Attributes(ctypes.Structure):
    """nvtxEventAttributes_t"""

    _fields_ = [("version", ctypes.c_uint16), ("size", ctypes.c_uint16), ("category", ctypes.c_uint32),
                ("color_type", ctypes.c_int32), ("color", ctypes.c_uint32), ("payload_type", ctypes.c_int32),
                ("reserved", ctypes.c_int32), ("payload", ctypes.c_uint64), ("message_type", ctypes.c_int32),
                ("message", ctypes.c_char_p)]


def main():
    nvtx, usdt, counted, diesel = map(ctypes.CDLL, sys.argv[1:5])
    steps = int(sys.argv[5])
    nvtx.nvtxDomainRangePushEx.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    time.sleep(0.3)
    clock = {"forward": 0.0, "loss": 0.0, "backward": 0.0, "attributes": 0.0, "counted": 0.0}
    attributes = Attributes(version=3, size=ctypes.sizeof(Attributes), message_type=1, message=b"attributes")
    long_name = b"a name of more than sixty-four bytes, which is cut, as nobody reads names as long as this one"

    for step in range(steps):
        diesel.diesel_mark(1, 0)
        time.sleep(0.001)
        diesel.diesel_mark(2, 0)
        begin = time.monotonic()
        usdt.usdt_forward(0)
        time.sleep(0.002)
        usdt.usdt_forward(1)
        clock["forward"] += time.monotonic() - begin
        begin = time.monotonic()
        nvtx.nvtxRangePushA(b"backward")
        time.sleep(0.002)
        inner = time.monotonic()
        nvtx.nvtxRangePushA(b"loss")  # nested
        time.sleep(0.001)
        nvtx.nvtxRangePop()
        clock["loss"] += time.monotonic() - inner
        nvtx.nvtxRangePop()
        clock["backward"] += time.monotonic() - begin
        begin = time.monotonic()
        nvtx.nvtxDomainRangePushEx(1234, ctypes.addressof(attributes))
        nvtx.nvtxRangePushEx(ctypes.byref(attributes))
        time.sleep(0.001)
        nvtx.nvtxRangePop()
        nvtx.nvtxDomainRangePop(1234)
        clock["attributes"] += 2 * (time.monotonic() - begin)
        nvtx.nvtxRangePushA(long_name)
        nvtx.nvtxRangePop()
    clock["listeners"] = [usdt.usdt_listeners(), counted.usdt_listeners()]
    print(json.dumps(clock), flush=True)


main()
