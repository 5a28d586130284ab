-- What stands between a script and the interpreter. Runs once for each interpreter; gives a function that
-- runs a script. The real tables of the libraries never reach a script: it sees empty ones, which look them up and
-- which nothing it has can write to, so there is nothing that it could leave behind.

local rust = ...
local error, type, next, select = error, type, next, select
local getmetatable, setmetatable, rawset = getmetatable, setmetatable, rawset
local pcall, xpcall, setfenv, loadstring = pcall, xpcall, setfenv, loadstring
local resume, collectgarbage, unpack = coroutine.resume, collectgarbage, unpack
local byte, rep, concat, floor = string.byte, string.rep, table.concat, math.floor
local gsub, find, tonumber, insert = string.gsub, string.find, tonumber, table.insert
local stopped, is_deep = rust.stopped, rust.is_deep
-- What C counts in: the first number beyond an int, and the longest text whose parts it can count.
local INT_END, CHUNK_MAX = 2147483648, 1073741824

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

function table.insert(t, ...)
  if shielded[t] then error(READONLY, 2) end
  return insert(t, ...)
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

for name, meta in next, shields do base[name] = shield({}, meta) end

-- What scripts see as their globals: beside these only KEYS and ARGV, which they may set.
local env = { KEYS = false, ARGV = false }
base._G, base.KEYS, base.ARGV = env, false, false
shield(env, globals)

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
  shield(env, globals)
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
