-- What stands between a script and the interpreter. Runs once for each interpreter; gives a function that
-- runs a script. The real tables of the libraries never reach a script: it sees empty ones made for its
-- run, which look them up, so whatever it does to those is gone with it.

local rust = ...
local error, type, next, select = error, type, next, select
local getmetatable, setmetatable, rawset = getmetatable, setmetatable, rawset
local pcall, xpcall, setfenv, loadstring = pcall, xpcall, setfenv, loadstring
local resume, collectgarbage, unpack = coroutine.resume, collectgarbage, unpack
local byte, rep, concat, floor = string.byte, string.rep, table.concat, math.floor
local gsub, tonumber = string.gsub, tonumber
local stopped, is_deep = rust.stopped, rust.is_deep
-- What C counts in: the first number beyond an int, and the longest text whose parts it can count.
local INT_END, CHUNK_MAX = 2147483648, 1073741824

local READONLY = 'Attempt to modify a readonly table'
-- Of the running script: what logs its lines, and its environment.
local log, current

local function library(functions, constants)
  local made = {}
  for name, f in next, functions do made[name] = f end
  for name, value in next, constants or {} do made[name] = value end
  return made
end

-- A script that is to stop does, whoever catches its errors.
local function caught(ok, e, ...)
  if ok then return ok, e, ... end
  if stopped() then error('stopped', 0) end
  if type(e) == 'table' and type(e.err) == 'string' then e = e.err end
  return ok, rust.message(e)
end

local function resumed(ok, e, ...)
  if not ok and stopped() then error('stopped', 0) end
  if ok then return ok, e, ... end
  return ok, rust.message(e)
end

local function is_shielded(t)
  return type(t) == 'table' and getmetatable(t) == false
end

local function load_text(text, name)
  if type(text) == 'number' then text = text .. '' end
  if type(text) ~= 'string' then
    error("bad argument #1 to 'loadstring' (string expected, got " .. type(text) .. ')', 2)
  end
  if byte(text, 1) == 27 then return nil, 'a chunk has to be text' end
  if #text > CHUNK_MAX then return nil, 'a chunk has at most a GiB' end
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
    return handler(rust.message(e))
  end))
end
function base.gcinfo() return floor(collectgarbage('count')), 0 end

function base.collectgarbage(what)
  if what == 'count' then return collectgarbage('count') end
  if what == nil or what == 'collect' then collectgarbage('collect') end
  return 0
end

function base.rawset(t, key, value)
  if is_shielded(t) then error(READONLY, 0) end
  return rawset(t, key, value)
end

function base.setmetatable(t, meta)
  if is_shielded(t) then error(READONLY, 0) end
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
  if first and last and not (is_int(first) and is_int(last) and last - first < 7900) then
    error('too many results to unpack', 2)
  end
  return unpack(t, from, to)
end

string.dump = nil
function string.rep(s, n)
  local text, times = type(s) == 'number' and s .. '' or s, tonumber(n)
  if text == '' then return text end
  -- Building what does not fit takes long before it fails.
  if type(text) == 'string' and times then
    if times < 1 then return '' end
    if not (#text * times <= rust.memory_max) then error('not enough memory', 0) end
  end
  return rep(text, n)
end

-- Each that calls back has some 8 KiB on the stack of the thread.
function string.gsub(s, pattern, by, n)
  if type(by) ~= 'string' and is_deep() then error('stack overflow', 2) end
  return gsub(s, pattern, by, n)
end
string.gfind = string.gmatch
getmetatable('').__metatable = false

math.random = rust.random
math.randomseed = rust.randomseed
coroutine.resume = function(...) return resumed(resume(...)) end

local redis = {
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
  log(...)
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
function redis.acl_check_cmd() return true end

function redis.set_repl(...)
  if select('#', ...) ~= 1 then refuse('redis.set_repl() requires one argument.') end
  local flags = ...
  if type(flags) ~= 'number' or flags < 0 or flags > 3 then
    refuse('Invalid replication flags. Please use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.')
  end
end

local cjson = library(rust.json, { _NAME = 'cjson', _VERSION = '2.1.0', null = rust.null })
function cjson.new() return cjson end

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

return function(script, call, protected_call, log_line, keys, args)
  local env = { KEYS = keys, ARGV = args }
  env._G = env
  for name, meta in next, shields do env[name] = setmetatable({}, meta) end
  rawset(env.redis, 'call', call)
  rawset(env.redis, 'pcall', protected_call)
  setmetatable(env, globals)
  setfenv(script, env)
  log, current = log_line, env
  local ok, result = xpcall(script, rust.handler)
  log, current = nil, nil
  return ok, result
end
