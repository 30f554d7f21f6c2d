-- Writes one batch of one partition and moves its position, in one step, if the position is where the writer left it.
--
-- KEYS[1]   the checkpoint: a hash of incarnation, position, source; the others as the writes name them by place
-- ARGV[1]   JSON {guard = [incarnation, position], next = [incarnation, position, source], writes = [...]};
--           the guard is two empty strings when nothing is stored yet
-- ARGV[2..] bytes that the writes name by place: JSON holds no bytes
--   ["set", key, {field: value}, {field: place}]                                    HSET
--   ["unset", key, [field]]                                                         HDEL
--   ["rank", score, member, [key]]                                                  ZADD to each
--   ["unrank", member, [key]]                                                       ZREM from each
--   ["extend", key, place]                                                          APPEND
--   ["keep", key, sizes, member, shelf, count max, bytes max, expire at, place, count, grown at, shelf's bytes max]
--                                                                                   RPUSH, then bounded
--   ["clear", key, sizes, member, shelf]                                            UNLINK, and counted
--            a shelf is [ranked, totals, name]; other lists on it have the key of this one, but for the member
--   ["add", key, {field: amount}]                                                   HINCRBY each
--   ["put", key, place]                                                             SET
--   ["push", key, id, count max, [name, value, ...]]                                XADD id-*, bounded
--   ["remove", [key]]                                                               UNLINK each
-- Answers 1, or what is stored instead: {incarnation, position}, false (nil) where nothing is.

local plan = cjson.decode(ARGV[1])

local stored = redis.call('HMGET', KEYS[1], 'incarnation', 'position')
if (stored[1] or '') ~= plan.guard[1] or (stored[2] or '') ~= plan.guard[2] then
  return stored
end

local AT_ONCE = 4000 -- Lua's unpack has a limit of about 8000

local writes = {}

function writes.set(w)
  local key, flat = KEYS[w[2]], {}
  for field, value in pairs(w[3]) do
    flat[#flat + 1] = field
    flat[#flat + 1] = value
  end
  for field, place in pairs(w[4]) do
    flat[#flat + 1] = field
    flat[#flat + 1] = ARGV[place]
  end
  for from = 1, #flat, AT_ONCE do
    redis.call('HSET', key, unpack(flat, from, math.min(from + AT_ONCE - 1, #flat)))
  end
end

function writes.unset(w)
  for from = 1, #w[3], AT_ONCE do
    redis.call('HDEL', KEYS[w[2]], unpack(w[3], from, math.min(from + AT_ONCE - 1, #w[3])))
  end
end

function writes.rank(w)
  local score, member = w[2], w[3]
  for _, key in ipairs(w[4]) do
    redis.call('ZADD', KEYS[key], score, member)
  end
end

function writes.unrank(w)
  for _, key in ipairs(w[3]) do
    redis.call('ZREM', KEYS[key], w[2])
  end
end

function writes.extend(w)
  redis.call('APPEND', KEYS[w[2]], ARGV[w[3]])
end

-- A list that leaves, and what is counted of it. Only what stands on the shelf is counted in its total.
local function clear(key, sizes, member, shelf)
  if redis.call('ZREM', KEYS[shelf[1]], member) == 1 then
    local size = redis.call('HGET', sizes, member) or 0
    if redis.call('HINCRBY', KEYS[shelf[2]], shelf[3], -size) <= 0 then
      redis.call('HDEL', KEYS[shelf[2]], shelf[3])
    end
  end
  redis.call('HDEL', sizes, member)
  redis.call('UNLINK', key)
end

-- The list of a member has `total` bytes and had `before`. Where all have too many, those leave that last grew the longest ago.
local function put_on_shelf(w, before, total)
  local key, sizes, member, shelf, most = KEYS[w[2]], KEYS[w[3]], w[4], w[5], w[12]
  if redis.call('ZADD', KEYS[shelf[1]], w[11], member) == 1 then
    before = 0
  end
  local all = redis.call('HINCRBY', KEYS[shelf[2]], shelf[3], total - before)
  local prefix = string.sub(key, 1, -#member - 1)
  while most > 0 and all > most do
    local oldest = redis.call('ZRANGE', KEYS[shelf[1]], 0, 0)[1]
    if not oldest then
      break
    end
    clear(prefix .. oldest, sizes, oldest, shelf)
    all = tonumber(redis.call('HGET', KEYS[shelf[2]], shelf[3]) or 0)
  end
end

function writes.keep(w)
  local key, sizes, member, first, count = KEYS[w[2]], KEYS[w[3]], w[4], w[9], w[10]
  local last, added, length = first + count - 1, 0, 0
  for place = first, last do
    added = added + #ARGV[place]
  end
  for from = first, last, AT_ONCE do
    length = redis.call('RPUSH', key, unpack(ARGV, from, math.min(from + AT_ONCE - 1, last)))
  end
  local before = tonumber(redis.call('HGET', sizes, member) or 0)
  local total = before + added
  if length == count then -- the list is new, or the old one has expired: sizes may know no better
    total = added
  end
  while length > 0 and (length > w[6] or total > w[7]) do
    total = total - #redis.call('LPOP', key)
    length = length - 1
  end
  redis.call('HSET', sizes, member, total)
  redis.call('PEXPIREAT', key, w[8])
  put_on_shelf(w, before, total)
end

function writes.clear(w)
  clear(KEYS[w[2]], KEYS[w[3]], w[4], w[5])
end

function writes.add(w)
  for field, amount in pairs(w[3]) do
    redis.call('HINCRBY', KEYS[w[2]], field, amount)
  end
end

function writes.put(w)
  redis.call('SET', KEYS[w[2]], ARGV[w[3]])
end

function writes.push(w)
  local newest = redis.call('XREVRANGE', KEYS[w[2]], '+', '-', 'COUNT', 1)[1]
  local late = newest and string.match(newest[1], '^%d+')
  if late and tonumber(late) > tonumber(w[3]) then -- ids only rise
    w[3] = late
  end
  redis.call('XADD', KEYS[w[2]], 'MAXLEN', '=', w[4], w[3] .. '-*', unpack(w[5]))
end

function writes.remove(w)
  for _, key in ipairs(w[2]) do
    redis.call('UNLINK', KEYS[key])
  end
end

for _, w in ipairs(plan.writes) do
  writes[w[1]](w)
end

redis.call('HSET', KEYS[1], 'incarnation', plan.next[1], 'position', plan.next[2], 'source', plan.next[3])
return 1
