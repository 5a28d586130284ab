-- What stands between a script and the interpreter. Runs once for each interpreter; gives a function that
-- runs a script. The real tables of the libraries never reach a script: it sees empty ones, which look them up and
-- which nothing it has can write to, so there is nothing that it could leave behind.

local rust = ...
local error, type, next, select = error, type, next, select
local getmetatable, setmetatable, rawget, rawset = getmetatable, setmetatable, rawget, rawset
local pcall, xpcall, setfenv, loadstring = pcall, xpcall, setfenv, loadstring
local resume, collectgarbage, unpack = coroutine.resume, collectgarbage, unpack
local byte, sub, concat = string.byte, string.sub, table.concat
local floor, ceil = math.floor, math.ceil
local find, seek, gsub_text = rust.string.find, rust.string.seek, rust.string.gsub
local tonumber, insert, remove = tonumber, table.insert, table.remove
local stopped, look = rust.stopped, rust.look
-- What C counts in: the first number beyond an int and beyond 64 bits, and the longest text whose parts it can count.
local INT_END, LONG_END, CHUNK_MAX = 2147483648, 2^63, 1073741824

-- The longest text, and the most elements, that a function of C is given before the script is looked at: no hook reaches it.
local LONG, MANY = 32768, 4096
-- KiB that a step of the collector is for: some milliseconds.
local STEP_KIB = 1000

local READONLY = 'Attempt to modify a readonly table'
-- The environment of what runs.
local current
-- What the library that is being loaded has registered.
local registering

local function library(functions, constants)
  local made = {}
  for name, f in next, functions do made[name] = f end
  for name, value in next, constants or {} do made[name] = value end
  return made
end

-- A script that is to stop does, whoever catches its errors. One that has little memory left would only collect garbage
-- from then on, for a few bytes each time: it ends as well.
local NO_MEMORY = 'not enough memory'
local function is_spent(e)
  return type(e) ~= 'table' and rust.is_short_of_memory() and rust.message(e) == NO_MEMORY
end
local function let_through(e)
  if stopped() then error('stopped', 0) end
  if is_spent(e) then error(NO_MEMORY, 0) end
end

local function caught(ok, ...)
  if ok then return ok, ... end
  local e = ...
  let_through(e)
  -- The globals would refuse to be asked for it.
  local err = type(e) == 'table' and rawget(e, 'err')
  if type(err) == 'string' then e = err end
  return ok, rust.message(e)
end

local function resumed(ok, ...)
  if ok then return ok, ... end
  let_through((...))
  return ok, rust.message((...))
end

-- The tables that nobody writes to: C's functions would, past their metatables.
local shielded = setmetatable({}, { __mode = 'k' })
local function shield(t, meta)
  shielded[t] = true
  return setmetatable(t, meta)
end

local function load_text(text, name)
  if type(text) == 'number' then text = text .. '' end
  if type(text) ~= 'string' then
    error("bad argument #1 to 'loadstring' (string expected, got " .. type(text) .. ')', 2)
  end
  if byte(text, 1) == 27 then return nil, 'a chunk has to be text' end
  if #text > CHUNK_MAX then return nil, 'a chunk has at most a GiB' end
  if #text > LONG then look() end
  local f, why = loadstring(text, name or text)
  if f then setfenv(f, current) end
  return f, why
end

local base = {
  _VERSION = _VERSION,
  assert = assert,
  error = error,
  getmetatable = getmetatable,
  ipairs = ipairs,
  loadstring = load_text,
  next = next,
  pairs = pairs,
  rawequal = rawequal,
  rawget = rawget,
  select = select,
  tonumber = tonumber,
  tostring = tostring,
  type = type,
}

function base.pcall(...) return caught(pcall(...)) end
-- A handler of what the host has raised would run with nobody to ask whether to go on.
function base.xpcall(f, handler)
  return resumed(xpcall(f, function(e)
    if stopped() then return e end
    if is_spent(e) then return NO_MEMORY end
    return handler(rust.message(e))
  end))
end
function base.gcinfo() return floor(collectgarbage('count')), 0 end

function base.collectgarbage(what)
  if what == 'count' then return collectgarbage('count') end
  if (what == nil or what == 'collect') and not rust.is_held() then
    -- Twice round in steps: a cycle may have begun before what is garbage now.
    for _ = 1, 2 do
      repeat look() until collectgarbage('step', STEP_KIB)
    end
  end
  return 0
end

function base.rawset(t, key, value)
  if shielded[t] then error(READONLY, 0) end
  return rawset(t, key, value)
end

function base.setmetatable(t, meta)
  if shielded[t] then error(READONLY, 0) end
  return setmetatable(t, meta)
end

-- A chunk that is read while it is made could let the collector take its name.
function base.load(pieces, name)
  if type(pieces) ~= 'function' then
    error("bad argument #1 to 'load' (function expected, got " .. type(pieces) .. ')', 2)
  end
  local text, n = {}, 0
  while true do
    local piece = pieces()
    if piece == nil or piece == '' then break end
    if type(piece) ~= 'string' then error('reader function must return a string', 2) end
    n = n + 1
    text[n] = piece
  end
  return load_text(concat(text), name or '=(load)')
end

local function is_int(n) return n >= -INT_END and n < INT_END end

-- More would not fit on the stack, and how many there are must not overflow. (NaN is neither in the range nor less.)
function base.unpack(t, from, to)
  local first, last = tonumber(from == nil and 1 or from), tonumber(to)
  if to == nil and type(t) == 'table' then last = #t end
  if first and last and not (is_int(first) and is_int(last) and last - first < 7999) then
    error('too many results to unpack', 2)
  end
  -- What is given on has room on the stack as well.
  if from == nil and to == nil then return unpack(t) end
  return unpack(t, from, to)
end

string.dump = nil
string.find, string.match, string.rep = find, rust.string.match, rust.string.rep

local function bad_argument(at, name, expected, got)
  error('bad argument #' .. at .. " to '" .. name .. "' (" .. expected .. ' expected, got ' ..
    (got == nil and 'no value' or type(got)) .. ')', 3)
end

-- A text, of a text or a number.
local function text_of(value, at, name)
  if type(value) == 'string' then return value end
  if type(value) == 'number' then return value .. '' end
  error('bad argument #' .. at .. " to '" .. name .. "' (string expected, got " ..
    (value == nil and 'no value' or type(value)) .. ')', 3)
end

for _, name in next, { 'lower', 'upper', 'reverse' } do
  local f = string[name]
  string[name] = function(s)
    local text = text_of(s, 1, name)
    if #text > LONG then look() end
    return f(text)
  end
end

-- Where the next match is looked for from: behind this one, or a byte further if it is empty.
function string.gmatch(s, pattern)
  s, pattern = text_of(s, 1, 'gmatch'), text_of(pattern, 2, 'gmatch')
  local from = 0
  local function further(first, last, ...)
    if not first then return end
    from = last > first and last or last + 1
    return ...
  end
  return function()
    if from > #s then return end
    return further(seek(s, pattern, from))
  end
end
string.gfind = string.gmatch

-- Texts that are put behind each other: many short ones become a long one now and then.
local function joiner()
  local few, count, parts, bytes = {}, 0, {}, 0
  local function join()
    if count > 0 then parts[#parts + 1] = concat(few, '', 1, count) end
    count = 0
  end
  return function(text)
    if #text == 0 then return end
    bytes = bytes + #text
    if bytes > rust.memory_max then error(NO_MEMORY, 0) end
    count = count + 1
    few[count] = text
    if count == 256 then join() end
  end, function()
    join()
    return concat(parts)
  end
end

local function replaced(by, is_table, first, last, ...)
  if not first then return end
  if is_table then return first, last, by[(...)] end
  return first, last, (by(...))
end

-- Lua calls back from here: C's function would have some KiB of its own on the stack of the thread each time.
local function gsub_by(s, pattern, by, most)
  local is_table, anchored = type(by) == 'table', byte(pattern, 1) == 94
  local add, all = joiner()
  local from, count = 0, 0
  while count < most do
    local first, last, text = replaced(by, is_table, seek(s, pattern, from, true, is_table))
    if not first then break end
    count = count + 1
    add(sub(s, from + 1, first))
    if not text then
      add(sub(s, first + 1, last))
    elseif type(text) == 'string' then
      add(text)
    elseif type(text) == 'number' then
      add(text .. '')
    else
      error('invalid replacement value (a ' .. type(text) .. ')', 3)
    end
    from = last
    if last == first then
      if last >= #s then break end
      add(sub(s, last + 1, last + 1))
      from = last + 1
    end
    if anchored then break end
  end
  add(sub(s, from + 1))
  return all(), count
end

function string.gsub(s, pattern, by, n)
  local kind = type(by)
  if kind == 'string' or kind == 'number' then
    local text, count = gsub_text(s, pattern, by, n)
    return text, count
  end
  s, pattern = text_of(s, 1, 'gsub'), text_of(pattern, 2, 'gsub')
  local most = n == nil and #s + 1 or tonumber(n)
  if not most then bad_argument(4, 'gsub', 'number', n) end
  if kind ~= 'table' and kind ~= 'function' then
    error("bad argument #3 to 'gsub' (string/function/table expected)", 2)
  end
  local text, count = gsub_by(s, pattern, by, floor(most))
  return text, count
end

-- The position that C makes of an argument: of a number, or a text that reads as one, its whole part, of which an int has
-- the lowest bits. Nil of all else, which C refuses.
local function position(value)
  local n = tonumber(value)
  if not n then return nil end
  n = n < 0 and ceil(n) or floor(n)
  if is_int(n) then return n end
  -- NaN is not in the range either.
  if not (n >= -LONG_END and n < LONG_END) then return 0 end
  n = n % (2 * INT_END)
  return n < INT_END and n or n - 2 * INT_END
end

function table.insert(t, ...)
  if shielded[t] then error(READONLY, 2) end
  if select('#', ...) == 2 and type(t) == 'table' then
    local at, value = ...
    at = position(at)
    -- C's moves what is behind, however much that is.
    if at and #t - at >= MANY then
      for i = #t + 1, at + 1, -1 do rawset(t, i, rawget(t, i - 1)) end
      rawset(t, at, value)
      return
    end
  end
  return insert(t, ...)
end

function table.remove(t, ...)
  local at
  if type(t) == 'table' then at = position((...)) end
  if at and at >= 1 and #t - at >= MANY then
    local last, value = #t, rawget(t, at)
    for i = at, last - 1 do rawset(t, i, rawget(t, i + 1)) end
    rawset(t, last, nil)
    return value
  end
  return remove(t, ...)
end

function table.concat(t, between, from, to)
  local first = from == nil and 1 or position(from)
  local last = position(to)
  if to == nil and type(t) == 'table' then last = #t end
  if type(t) ~= 'table' or not first or not last or last - first < MANY then
    if type(between) == 'string' and #between > LONG then look() end
    return concat(t, between, from, to)
  end
  local parts = {}
  for at = first, last, MANY do
    look()
    local till = at + MANY - 1
    parts[#parts + 1] = concat(t, between, at, till < last and till or last)
  end
  look()
  return concat(parts, between)
end

function table.maxn(t)
  if type(t) ~= 'table' then bad_argument(1, 'maxn', 'table', t) end
  local most = 0
  for key in next, t do
    if type(key) == 'number' and key > most then most = key end
  end
  return most
end

function table.foreach(t, f)
  if type(t) ~= 'table' then bad_argument(1, 'foreach', 'table', t) end
  if type(f) ~= 'function' then bad_argument(2, 'foreach', 'function', f) end
  for key, value in next, t do
    local result = f(key, value)
    if result ~= nil then return result end
  end
end

function table.foreachi(t, f)
  if type(t) ~= 'table' then bad_argument(1, 'foreachi', 'table', t) end
  if type(f) ~= 'function' then bad_argument(2, 'foreachi', 'function', f) end
  for at = 1, #t do
    local result = f(at, rawget(t, at))
    if result ~= nil then return result end
  end
end

-- The quicksort of C, with the same comparisons in the same order, without recursion. LESS(a, b) is put in as text.
local quicksort = [[
local t, n, less, fail = ...
local lows, highs, depth, l, u = {}, {}, 0, 1, n
while true do
  while l < u do
    if LESS(t[u], t[l]) then t[l], t[u] = t[u], t[l] end
    if u - l == 1 then break end
    local i = (l + u - (l + u) % 2) / 2
    if LESS(t[i], t[l]) then
      t[i], t[l] = t[l], t[i]
    elseif LESS(t[u], t[i]) then
      t[i], t[u] = t[u], t[i]
    end
    if u - l == 2 then break end
    local pivot = t[i]
    t[i], t[u - 1] = t[u - 1], pivot
    local j
    i, j = l, u - 1
    while true do
      i = i + 1
      while LESS(t[i], pivot) do
        if i > u then return fail() end
        i = i + 1
      end
      j = j - 1
      while LESS(pivot, t[j]) do
        if j < l then return fail() end
        j = j - 1
      end
      if j < i then break end
      t[i], t[j] = t[j], t[i]
    end
    t[u - 1], t[i] = t[i], t[u - 1]
    depth = depth + 1
    if i - l < u - i then
      lows[depth], highs[depth] = i + 1, u
      u = i - 1
    else
      lows[depth], highs[depth] = l, i - 1
      l = i + 1
    end
  end
  if depth == 0 then return end
  l, u, depth = lows[depth], highs[depth], depth - 1
end]]
local sort_by = loadstring((gsub_text(quicksort, 'LESS', 'less')), '=prelude')
local sort_plain = loadstring((gsub_text(quicksort, 'LESS%(([^,]+), ([^)]+)%)', '(%1 < %2)')), '=prelude')

local function below(a, b)
  local x, y = type(a), type(b)
  if x ~= y then error('attempt to compare ' .. x .. ' with ' .. y, 0) end
  if x == 'number' or x == 'string' or getmetatable(a) ~= nil then return a < b end
  error('attempt to compare two ' .. x .. ' values', 0)
end

-- Whether the elements are all numbers, or all texts: those have an order of their own.
local function are_plain(t, n)
  local kind = type(rawget(t, 1))
  if kind ~= 'number' and kind ~= 'string' then return false end
  for at = 2, n do
    if type(rawget(t, at)) ~= kind then return false end
  end
  return true
end

function table.sort(t, less)
  if type(t) ~= 'table' then bad_argument(1, 'sort', 'table', t) end
  if less ~= nil and type(less) ~= 'function' then bad_argument(2, 'sort', 'function', less) end
  local failed = false
  local function fail() failed = true end
  local n, sorted = #t, t
  -- C asks no metatable.
  if getmetatable(t) ~= nil then
    sorted = {}
    for at = 1, n do sorted[at] = rawget(t, at) end
  end
  if less == nil and are_plain(t, n) then
    sort_plain(sorted, n, nil, fail)
  else
    sort_by(sorted, n, less or below, fail)
  end
  if sorted ~= t then
    for at = 1, n do rawset(t, at, sorted[at]) end
  end
  if failed then error('invalid order function for sorting', 2) end
end

getmetatable('').__metatable = false

math.random = rust.random
math.randomseed = rust.randomseed
coroutine.resume = function(...) return resumed(resume(...)) end

local redis = {
  call = rust.call, pcall = rust.pcall,
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
  REDIS_VERSION = rust.version, REDIS_VERSION_NUM = rust.version_number,
  sha1hex = rust.sha1hex,
}

local function refuse(text) error({ err = 'ERR ' .. text }, 0) end

function redis.log(...)
  if select('#', ...) < 2 then refuse('redis.log() requires two arguments or more.') end
  local level = ...
  if type(level) ~= 'number' then refuse('First argument must be a number (log level).') end
  if level < 0 or level > 3 then refuse('Invalid debug level.') end
  rust.log(...)
end

function redis.setresp(...)
  if select('#', ...) ~= 1 then refuse('redis.setresp() requires one argument.') end
  local version = ...
  if version ~= 2 and version ~= 3 then refuse('RESP version must be 2 or 3.') end
  rust.setresp(version)
end

function redis.error_reply(...)
  local text = ...
  if select('#', ...) ~= 1 or type(text) ~= 'string' then
    return { err = 'ERR wrong number or type of arguments' }
  end
  return { err = rust.error_text(text) }
end

function redis.status_reply(...)
  local text = ...
  if select('#', ...) ~= 1 or type(text) ~= 'string' then
    return { err = 'ERR wrong number or type of arguments' }
  end
  return { ok = text }
end

-- Effects are logged whatever a script asks for, and there is nobody who debugs.
function redis.replicate_commands() return true end
function redis.breakpoint() return false end
function redis.debug() end

function redis.acl_check_cmd(...)
  if select('#', ...) == 0 then
    refuse('Please specify at least one argument for this redis.acl_check_cmd() call')
  end
  local may = rust.may_call(...)
  if may == nil then refuse('Invalid command passed to redis.acl_check_cmd()') end
  return may
end

function redis.set_repl(...)
  if select('#', ...) ~= 1 then refuse('redis.set_repl() requires one argument.') end
  local flags = ...
  if type(flags) ~= 'number' or flags < 0 or flags > 3 then
    refuse('Invalid replication flags. Please use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.')
  end
end

local cjson = library(rust.json, { _NAME = 'cjson', _VERSION = '2.1.0', null = rust.null })
-- A table of the caller's own: the one that all scripts look functions up in reaches none of them.
function cjson.new() return library(cjson) end

local shields = {}
for name, real in next, {
  string = string, table = table, math = math, coroutine = coroutine, redis = redis,
  os = { clock = os.clock }, bit = library(rust.bit), cjson = cjson,
  struct = library(rust.pack), cmsgpack = library(rust.msgpack, {
    _NAME = 'cmsgpack', _VERSION = 'lua-cmsgpack 0.4.0',
    _COPYRIGHT = 'as the library of that name', _DESCRIPTION = 'MessagePack for Lua',
  }),
} do
  shields[name] = {
    __index = real,
    __newindex = function() error(READONLY, 2) end,
    __metatable = false,
  }
end

setmetatable(base, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. rust.text(name) .. "'", 2)
  end,
})

local globals = {
  __index = base,
  __newindex = function() error(READONLY, 2) end,
  __metatable = false,
}

for name, meta in next, shields do base[name] = shield({}, meta) end

-- What scripts see as their globals: beside these only KEYS and ARGV, which they may set.
local env = { KEYS = false, ARGV = false }
base._G, base.KEYS, base.ARGV = env, false, false
shield(env, globals)

-- What libraries see beside their own tables: nothing leads to the globals of scripts.
local library_base = library(base)
for _, name in next, { '_G', 'KEYS', 'ARGV', 'redis' } do library_base[name] = nil end
setmetatable(library_base, getmetatable(base))
local library_globals = {
  __index = library_base,
  __newindex = globals.__newindex,
  __metatable = false,
}

local handler = rust.handler

local function run_script(script, keys, args)
  if env.KEYS and env.ARGV then
    env.KEYS, env.ARGV = keys, args
  else
    -- A script has put them away: that is all that it can do to its globals.
    rawset(env, 'KEYS', keys)
    rawset(env, 'ARGV', args)
  end
  current = env
  return xpcall(script, handler)
end

-- What a library finds while it is loaded, and what its functions find later: no command can be run before.
local register = {}

local function named(t)
  local name, callback, description, flags = nil, nil, nil, {}
  for key, value in next, t do
    if type(key) ~= 'string' then
      refuse('named argument key given to redis.register_function is not a string')
    elseif key == 'function_name' then
      if type(value) ~= 'string' then
        refuse('function_name argument given to redis.register_function must be a string')
      end
      name = value
    elseif key == 'description' then
      if type(value) ~= 'string' then
        refuse('description argument given to redis.register_function must be a string')
      end
      description = value
    elseif key == 'callback' then
      if type(value) ~= 'function' then
        refuse('callback argument given to redis.register_function must be a function')
      end
      callback = value
    elseif key == 'flags' then
      if type(value) ~= 'table' then
        refuse('flags argument to redis.register_function must be a table representing function flags')
      end
      for at = 1, #value do
        if not rust.is_flag(value[at]) then refuse('unknown flag given') end
        flags[at] = value[at]
      end
    else
      refuse('unknown argument given to redis.register_function')
    end
  end
  if not name then refuse('redis.register_function must get a function name argument') end
  if not callback then refuse('redis.register_function must get a callback argument') end
  return name, callback, description, flags
end

function register.register_function(...)
  if not registering then
    refuse('redis.register_function can only be called on FUNCTION LOAD command')
  end
  local count, name, callback = select('#', ...), ...
  local description, flags = nil, {}
  if count < 1 or count > 2 then
    refuse('wrong number of arguments to redis.register_function')
  elseif count == 1 then
    if type(name) ~= 'table' then
      refuse('calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).')
    end
    name, callback, description, flags = named(name)
  else
    if type(name) ~= 'string' then refuse('first argument to redis.register_function must be a string') end
    if type(callback) ~= 'function' then
      refuse('second argument to redis.register_function must be a function')
    end
  end
  if not find(name, '^[%w_]+$') then
    refuse('Library names can only contain letters, numbers, or underscores(_) and must be at least one character long')
  end
  for at = 1, #registering do
    if registering[at].name == name then refuse('Function already exists in the library') end
  end
  registering[#registering + 1] = {
    name = name, callback = callback, description = description, flags = flags,
  }
end

local while_loading = { log = redis.log, register_function = register.register_function }
for name, value in next, redis do
  if type(value) ~= 'function' then while_loading[name] = value end
end
setmetatable(while_loading, getmetatable(base))
local afterwards = library(redis, register)

local function load_library(chunk)
  local env, redis = {}, {}
  env._G, env.redis = env, redis
  local meta = { __index = while_loading, __newindex = shields.redis.__newindex, __metatable = false }
  shield(redis, meta)
  shield(env, library_globals)
  setfenv(chunk, env)
  registering, current = {}, env
  local ok, result = xpcall(chunk, rust.handler)
  if ok then result = registering end
  registering = nil
  meta.__index = afterwards
  return ok, result, env
end

local function call_function(f, env, keys, args)
  current = env
  return xpcall(function() return f(keys, args) end, rust.handler)
end

return run_script, load_library, call_function, env
