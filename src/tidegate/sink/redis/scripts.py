"""The scripts that Redis runs, each whole or not at all.

    write      for each entry: nothing if the key or its tombstone is as new, else the row, or a tombstone
    append     entries behind the last one of a stream; nothing if the server was restarted meanwhile
    take       become the writer: raise the epoch; the epoch, the revision and what was kept
    advance    keep a checkpoint, if the epoch and the revision are those that this writer left

    KEYS of write     row, tombstone, row, tombstone, ..
    ARGV of write     msgpack [[names of a row's fields, of a look-up's], [[version, fields, kind], ..]]
                      fields nil: it is gone; kind 0: a row, 1: a look-up
                      milliseconds that tombstones live
                      channel on which rows that change are announced, or nothing
                      bytes, to which numbers among the fields point

    KEYS of append    the stream
    ARGV of append    msgpack [[id, type, table, event], ..], ids ascending; those not above the last id are left out
                      about how many entries the stream keeps; 0: all
                      run ids of the servers, in which entries are taken

An entry's `fields` are, in the mode json, one text: the JSON object without its first brace.  A value that some other
program keeps under a row's key is replaced.
"""

from typing import Final

from tidegate.sink.redis.version import FIELD, VERSION_BYTES

_FRAME: Final = """
local fields_of, entries = unpack(cmsgpack.unpack(ARGV[1]))
local written = 0
for at, entry in ipairs(entries) do
  local key, tombstone = KEYS[2 * at - 1], KEYS[2 * at]
  local version, fields, names = entry[1], entry[2], fields_of[entry[3] + 1]
  local have = HAVE
  local gone = redis.call('GET', tombstone)
  if not (have and have >= version) and not (gone and gone >= version) then
    if fields then
      PUT
      if gone then redis.call('DEL', tombstone) end
    else
      redis.call('UNLINK', key)
      redis.call('SET', tombstone, version, 'PX', ARGV[2])
    end
    if ARGV[3] ~= '' and entry[3] == 0 then
      redis.call('PUBLISH', ARGV[3], cjson.encode({key = key, version = version, gone = not fields}))
    end
    written = written + 1
  end
end
return written
"""
_HASH_HAVE: Final = f"""nil
  if redis.call('TYPE', key).ok == 'hash' then have = redis.call('HGET', key, '{FIELD}') end"""
_HASH_PUT: Final = f"""redis.call('UNLINK', key)
      local told = {{key, '{FIELD}', version}}
      for place, name in ipairs(names) do
        local value = fields[place]
        if value then
          if type(value) == 'number' then value = ARGV[value] end
          told[#told + 1] = name
          told[#told + 1] = value
        end
        if #told > 2000 then
          redis.call('HSET', unpack(told))
          told = {{key}}
        end
      end
      if #told > 1 then redis.call('HSET', unpack(told)) end"""
OPENING: Final = f'{{"{FIELD}":"'
_JSON_HAVE: Final = f"""nil
  if redis.call('TYPE', key).ok == 'string' then
    have = redis.call('GETRANGE', key, 0, {len(OPENING) + VERSION_BYTES - 1})
    have = string.sub(have, 1, {len(OPENING)}) == '{OPENING}' and string.sub(have, {len(OPENING) + 1})
  end"""
_JSON_PUT: Final = f"""redis.call('SET', key, '{OPENING}' .. version .. '",' .. fields[1])"""
WRITE: Final = {
    "hash": _FRAME.replace("HAVE", _HASH_HAVE).replace("PUT", _HASH_PUT),
    "json": _FRAME.replace("HAVE", _JSON_HAVE).replace("PUT", _JSON_PUT),
}
"""By mode."""
APPEND: Final = """
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local known = false
for at = 3, #ARGV do known = known or ARGV[at] == run_id end
if not known then return redis.error_reply('RESTARTED this server began anew, or another took over') end
local function above(id, other)
  local ts, seq = string.match(id, '(%d+)-(%d+)')
  local its, nth = string.match(other, '(%d+)-(%d+)')
  if ts == its then ts, its = seq, nth end
  if #ts ~= #its then return #ts > #its end
  return ts > its
end
local last = '0-0'
if redis.call('EXISTS', KEYS[1]) == 1 then
  local told = redis.call('XINFO', 'STREAM', KEYS[1])
  for at = 1, #told, 2 do
    if told[at] == 'last-generated-id' then last = told[at + 1] end
  end
end
local added = 0
for _, entry in ipairs(cmsgpack.unpack(ARGV[1])) do
  if above(entry[1], last) then
    local given = {KEYS[1], entry[1], 'type', entry[2], 'table', entry[3], 'event', entry[4]}
    if ARGV[2] ~= '0' then
      redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], unpack(given, 2))
    else
      redis.call('XADD', unpack(given))
    end
    added = added + 1
  end
end
return added
"""
TAKE: Final = """
redis.call('HINCRBY', KEYS[1], 'epoch', 1)
return redis.call('HMGET', KEYS[1], 'epoch', 'revision', 'checkpoint', 'schema')
"""
ADVANCE: Final = """
local epoch, revision = unpack(redis.call('HMGET', KEYS[1], 'epoch', 'revision'))
if (epoch or '0') ~= ARGV[1] or (revision or '0') ~= ARGV[2] then
  return {epoch or '0', revision or '0'}
end
redis.call('HINCRBY', KEYS[1], 'revision', 1)
redis.call('HSET', KEYS[1], 'checkpoint', ARGV[3])
if ARGV[4] then redis.call('HSET', KEYS[1], 'schema', ARGV[4]) end
return {}
"""
