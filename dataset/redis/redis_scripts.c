/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_scripts.h"

#define MARK                                                                                                 \
	"local k, tx = KEYS[1], tonumber(ARGV[1])\n"                                                         \
	"local mark = redis.call('HGET', k, '')\n"                                                           \
	"if not mark or #mark ~= 40 then return redis.error_reply('DIESELLOST') end\n"                       \
	"local fence, t0, n0, t1, n1 = struct.unpack('>I8I8I8I8I8', mark)\n"                                 \
	"if fence > tx or t1 > tx then return redis.error_reply('DIESELBUSY') end\n"
#define SET_MARK "redis.call('HSET', k, '', struct.pack('>I8I8I8I8I8', fence, t0, n0, t1, n1))\n"

/* clang-format off */
const char *const redis_scripts[N_REDIS_SCRIPTS] = {
	/* Puts values. Key: a bucket. Arguments: the writer's number, then fields and values; an empty value
	 * deletes the field. */
	[SCRIPT_PUT] = MARK
		"if t1 < tx then t0, n0, t1 = t1, n1, tx end\n"
		"for i = 2, #ARGV, 2 do\n"
		"  local v, old, live, at = redis.call('HGET', k, ARGV[i]), '', false, 1\n"
		"  while v and at <= #v do\n"
		"    local tag, size = struct.unpack('>I8B', v, at)\n"
		"    live = size > 0\n"
		"    if tag < tx then old = live and v:sub(at, at + 8 + size) or '' end\n"
		"    at = at + 9 + size\n"
		"  end\n"
		"  local data = ARGV[i + 1]\n"
		"  if live then n1 = n1 - 1 end\n"
		"  if #data > 0 then n1 = n1 + 1 end\n"
		"  if #data > 0 or #old > 0 then\n"
		"    redis.call('HSET', k, ARGV[i], old .. struct.pack('>I8B', tx, #data) .. data)\n"
		"  elseif v then redis.call('HDEL', k, ARGV[i]) end\n"
		"end\n"
		SET_MARK
		"return 1\n",
	/* Removes a dead writer's values. Key: a bucket. Arguments: the writer's number, then the dead
	 * writer's. */
	[SCRIPT_SWEEP] = MARK
		"local dead = tonumber(ARGV[2])\n"
		"if t1 == dead then\n"
		"  local all = redis.call('HGETALL', k)\n"
		"  for i = 1, #all, 2 do\n"
		"    local v, at, last, tag, size = all[i + 1], 1, 1, 0, 0\n"
		"    while all[i] ~= '' and at <= #v do\n"
		"      last = at\n"
		"      tag, size = struct.unpack('>I8B', v, at)\n"
		"      at = at + 9 + size\n"
		"    end\n"
		"    if all[i] ~= '' and tag == dead then\n"
		"      if last == 1 then redis.call('HDEL', k, all[i])\n"
		"      else redis.call('HSET', k, all[i], v:sub(1, last - 1)) end\n"
		"    end\n"
		"  end\n"
		"  t1, n1 = t0, n0\n"
		"end\n"
		"fence = tx\n"
		SET_MARK
		"return 1\n",
	/* Changes the state. Key: the state. Arguments: the operation, the dataset, the writer's number
	 * (unused by "begin" and "create"), then fields and values. */
	[SCRIPT_STATE] =
		"local k, op, id, tx = KEYS[1], ARGV[1], ARGV[2], ARGV[3]\n"
		"local has = redis.call('HMGET', k, 'dataset', 'tx', 'committed', 'version', 'pending')\n"
		"local set = {}\n"
		"for i = 4, #ARGV do set[i - 3] = ARGV[i] end\n"
		"if op == 'create' then\n"
		"  if has[1] and has[1] ~= id and (has[4] ~= '0' or has[5] ~= '') then return redis.error_reply('DIESELOTHER') end\n"
		"  if has[1] == id then return 0 end\n"
		"  redis.call('DEL', k)\n"
		"  redis.call('HSET', k, 'dataset', id, unpack(set))\n"
		"  return 1\n"
		"end\n"
		"if not has[1] then return redis.error_reply('DIESELLOST') end\n"
		"if has[1] ~= id then return redis.error_reply('DIESELOTHER') end\n"
		"if op == 'begin' then\n"
		"  if has[5] == '' then redis.call('HSET', k, unpack(set)) end\n"
		"  return redis.call('HINCRBY', k, 'tx', 1)\n"
		"end\n"
		"if has[2] ~= tx then return redis.error_reply('DIESELBUSY') end\n"
		"if op == 'forget' and has[3] == tx then return 0 end\n"
		"redis.call('HSET', k, unpack(set))\n"
		"return 1\n",
};
/* clang-format on */
