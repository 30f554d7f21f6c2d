-- Writes one batch of one partition and moves its position, in one step, if the position is where the writer left it.
--
-- KEYS[1]   the checkpoint: a hash of incarnation, position, source
-- ARGV      1 expected incarnation, 2 expected position (both '' when nothing is stored yet),
--           3 incarnation to store, 4 new position, 5 source, then the writes; `k` are 1-based places in KEYS
--   set    k count (field value)*               HSET
--   rank   score member count k*                ZADD to each
--   unrank member count k*                      ZREM from each
--   extend k data                               APPEND
--   keep   k sizes-k member count-max bytes-max expire-at-ms count entry*
-- Answers 1, or what is stored instead: {incarnation, position}, false (nil) where nothing is.

local stored = redis.call('HMGET', KEYS[1], 'incarnation', 'position')
if (stored[1] or '') ~= ARGV[1] or (stored[2] or '') ~= ARGV[2] then
  return stored
end

local AT_ONCE = 4000 -- Lua's unpack has a limit of about 8000

local at = 6
local last = #ARGV

local function hset(key, count)
  local from, to = at, at + 2 * count - 1
  while from <= to do
    local upto = math.min(from + AT_ONCE - 1, to)
    redis.call('HSET', key, unpack(ARGV, from, upto))
    from = upto + 1
  end
  at = to + 1
end

local function keep(key, sizes, member, count_max, bytes_max, expire_at, count)
  local total = 0
  if redis.call('EXISTS', key) == 1 then
    total = tonumber(redis.call('HGET', sizes, member) or '0')
  end
  local from, to = at, at + count - 1
  for i = from, to do
    total = total + #ARGV[i]
  end
  while from <= to do
    local upto = math.min(from + AT_ONCE - 1, to)
    redis.call('RPUSH', key, unpack(ARGV, from, upto))
    from = upto + 1
  end
  local length = redis.call('LLEN', key)
  while length > 0 and (length > count_max or total > bytes_max) do
    total = total - #redis.call('LPOP', key)
    length = length - 1
  end
  redis.call('HSET', sizes, member, total)
  redis.call('PEXPIREAT', key, expire_at)
  at = to + 1
end

while at <= last do
  local op = ARGV[at]
  if op == 'set' then
    local key, count = KEYS[tonumber(ARGV[at + 1])], tonumber(ARGV[at + 2])
    at = at + 3
    hset(key, count)
  elseif op == 'rank' then
    local score, member, count = ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
    for i = at + 4, at + 3 + count do
      redis.call('ZADD', KEYS[tonumber(ARGV[i])], score, member)
    end
    at = at + 4 + count
  elseif op == 'unrank' then
    local member, count = ARGV[at + 1], tonumber(ARGV[at + 2])
    for i = at + 3, at + 2 + count do
      redis.call('ZREM', KEYS[tonumber(ARGV[i])], member)
    end
    at = at + 3 + count
  elseif op == 'extend' then
    redis.call('APPEND', KEYS[tonumber(ARGV[at + 1])], ARGV[at + 2])
    at = at + 3
  elseif op == 'keep' then
    local key, sizes, member = KEYS[tonumber(ARGV[at + 1])], KEYS[tonumber(ARGV[at + 2])], ARGV[at + 3]
    local count_max, bytes_max = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
    local expire_at, count = ARGV[at + 6], tonumber(ARGV[at + 7])
    at = at + 8
    keep(key, sizes, member, count_max, bytes_max, expire_at, count)
  else
    return redis.error_reply('unknown write ' .. op)
  end
end

redis.call('HSET', KEYS[1], 'incarnation', ARGV[3], 'position', ARGV[4], 'source', ARGV[5])
return 1
