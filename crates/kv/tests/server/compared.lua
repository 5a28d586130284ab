return 1
--
return 3.99
--
return -3.99
--
return 'text'
--
return true
--
return false
--
return nil
--
return
--
return {1, 2, nil, 4}
--
return {1, {2, {3}}, 'x', {err = 'E in'}, {ok = 'fine'}, true, false, 1.5}
--
return {ok = 'a'}
--
return {err = 'a'}
--
return {err = 1}
--
return {double = 3.5}
--
return {map = {a = 1}}
--
return {set = {a = true}}
--
return {big_number = '123'}
--
return {verbatim_string = {format = 'txt', string = 'some'}}
--
return foo
--
foo = 1
--
string.x = 1
--
error('x')
--
error({err = 'MY e'})
--
return redis.call('nope')
--
return redis.call()
--
return redis.call({})
--
return redis.call('get')
--
return redis.call('multi')
--
return redis.call('subscribe', 'a')
--
return redis.call('eval', 'return 1', 0)
--
return redis.call('hello', '3')
--
return redis.call('object', 'nope')
--
local ok, e = pcall(redis.call, 'nope') return {tostring(ok), type(e), e}
--
return redis.pcall('nope')
--
return redis.pcall('lpush', 's', 'x')
--
return redis.call('lpush', 's', 'x')
--
return {redis.pcall('lpush', 's', 'x')['err']}
--
return redis.error_reply('x')
--
return redis.error_reply('x y')
--
return redis.error_reply('-x y')
--
return redis.error_reply('-x')
--
return redis.status_reply('x')
--
return redis.error_reply()
--
return redis.sha1hex()
--
return redis.sha1hex('')
--
return redis.sha1hex('abc')
--
redis.log(1)
--
redis.log('a', 'b')
--
redis.log(9, 'b')
--
redis.log(redis.LOG_DEBUG, 'b')
--
redis.setresp(4)
--
redis.setresp()
--
x
--
return tostring(nil)..(nil)
--
local function f() return f() + 1 end return f()
--
return tostring(rawset(_G, 'a', 1))
--
setmetatable(_G, {})
--
return redis.call('get', {})
--
return redis.call('set', 'new', 1.5)
--
return redis.call('set', 'new', 10)
--
return redis.call('set', 'new', 1e20)
--
return redis.call('get', 's')
--
return redis.call('get', 'none')
--
return type(redis.call('get', 'none'))
--
redis.setresp(3) return type(redis.call('get', 'none'))
--
return redis.call('hgetall', 'h')
--
redis.setresp(3) return redis.call('hgetall', 'h')
--
redis.setresp(3) return redis.call('smembers', 'set')
--
redis.setresp(3) return redis.call('zscore', 'z', 'm')
--
return redis.call('zscore', 'z', 'm')
--
return redis.call('lrange', 'l', 0, -1)
--
return redis.call('incr', 'n')
--
redis.call('incr', 'n') error('after')
--
return redis.call('ping')
--
return redis.call('echo', 'a')
--
return redis.call('select', 1)
--
redis.call('select', 1) redis.call('set', 'new', 'elsewhere') return 1
--
return load('return 1')()
--
return loadstring('return 1')()
--
return tostring(loadstring('x x'))
--
return print
--
return KEYS
--
return ARGV
--
return {#KEYS, #ARGV, KEYS[3] == nil, ARGV[3]}
--
return cjson.encode({1, 2, {a = 'b'}, 'x"/\\\n', 1.5, true, false})
--
return cjson.encode({})
--
return cjson.encode({[1] = 1, [2] = 2, [4] = 4})
--
return cjson.encode({[1] = 1, [100] = 2})
--
return cjson.encode(cjson.null)
--
return cjson.encode(0/0)
--
return cjson.encode({[{}] = 1})
--
return cjson.encode(function() end)
--
return cjson.encode(1e15) .. cjson.encode(123456789012345) .. cjson.encode(0.1) .. cjson.encode(-0.5)
--
return cjson.decode('[1,2,"x",null,true,{"a":[]}]')[3]
--
return cjson.decode('{"a":{"b":"c"}}').a.b
--
return tostring(cjson.decode('null') == cjson.null)
--
return cjson.decode('x')
--
return cjson.decode('[1,')
--
return cjson.decode('{1:2}')
--
return cjson.decode('{"a" 2}')
--
return cjson.decode('{"a":2')
--
return cjson.decode('[1 2]')
--
return cjson.decode('[1] x')
--
return cjson.decode('"abc')
--
return cjson.decode('"\\x"')
--
return cjson.decode('"\\u00e9\\ud83d\\ude00"')
--
return cjson.decode('"\\ud83d"')
--
return cjson.decode('')
--
return cjson.decode()
--
return cjson.decode('1e5') + cjson.decode('0x10') + cjson.decode('-1.5')
--
return cjson.encode(cjson.decode('[1.5,"a\\u0000b"]'))
--
return cmsgpack.pack(1, -1, 127, 128, -33, 300, -300, 70000, -70000, 5000000000, -5000000000)
--
return cmsgpack.pack(1.5, 0.1, 'text', true, false, nil)
--
return cmsgpack.pack({1, 2, 3})
--
return cmsgpack.pack({})
--
return cmsgpack.pack({a = 1})
--
return cmsgpack.pack(string.rep('x', 40)) .. #cmsgpack.pack(string.rep('x', 70000))
--
return {cmsgpack.unpack(cmsgpack.pack(1, 'a', {1, 2}))}
--
return cmsgpack.unpack('\220\0')
--
return cmsgpack.unpack('\193')
--
return {cmsgpack.unpack_one(cmsgpack.pack(1, 2, 3))}
--
return {cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 2)}
--
return cmsgpack.pack()
--
local t = {} for i = 1, 20 do t = {t} end return cmsgpack.pack(t)
--
return struct.pack('>I2', 258)
--
return struct.pack('<i4', -2) .. struct.pack('>h', -2) .. struct.pack('b', 5)
--
return struct.pack('>d', 1.5) .. struct.pack('>f', 1.5)
--
return struct.pack('s', 'text') .. struct.pack('c3', 'text') .. struct.pack('Bc0', 4, 'text')
--
return {struct.unpack('>I2h', '\1\2\255\254')}
--
return {struct.unpack('Bc0', '\4text')}
--
return {struct.unpack('s', 'text\0')}
--
return struct.unpack('s', 'text')
--
return struct.unpack('I4', 'ab')
--
return {struct.size('!8bd'), struct.size('bd'), struct.size('>I3'), struct.size('!4 b i')}
--
return struct.size('s')
--
return struct.pack('Z', 1)
--
return struct.pack('i99', 1)
--
return struct.pack('c10', 'abc')
--
return {bit.band(0xff, 0x0f), bit.bor(1, 2, 4), bit.bxor(5, 1), bit.bnot(0), bit.tobit(0xffffffff)}
--
return {bit.lshift(1, 31), bit.rshift(-1, 28), bit.arshift(-16, 2), bit.rol(1, 33), bit.ror(1, 1), bit.bswap(1)}
--
return bit.tohex(255) .. bit.tohex(255, 4) .. bit.tohex(-1, -8) .. bit.tohex(1, 0)
--
return bit.tohex(65535, -2147483648)
--
return bit.band()
--
return bit.band('x')
--
math.randomseed(7) return tostring(math.random(1000000))
--
return math.random(0)
--
return {string.rep('ab', 3), ('x'):upper(), ('%d %s'):format(5, 'a'), #('abc')}
--
return tostring(1e15) .. tostring(0.1) .. tostring(2^53)
--
local t = {} for k, v in ipairs({5, 3, 1}) do t[k] = v * 2 end table.sort(t) return t
--
return {unpack({1, 2, 3})}
--
return {pcall(error, 'x')}
--
return {select('#', 1, 2, 3), select(2, 'a', 'b')}
--
local co = coroutine.wrap(function() coroutine.yield(1) coroutine.yield(2) end) return {co(), co()}
--
return redis.REDIS_VERSION == nil
--
return {redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING}
--
return redis.set_repl(redis.REPL_ALL)
--
return redis.replicate_commands()
--
#!lua flags=no-writes
return redis.call('set', 'new', 'b')
--
#!lua name=x
return 1
--
#!lua flags=foo
return 1
--
#!js
return 1
--
#!lua
return 1
--
local t = {} t[1] = t return 1
--
return redis.call('debug', 'sleep', 0)
--
return xpcall(function() error('a') end, function(e) return e end)
--
return {xpcall(function() error('a') end, function(e) return e end)}
--
local t = setmetatable({}, {__index = function() return 'i' end}) return t.x
--
return type(getmetatable)
--
return tostring(tonumber('0x10')) .. tostring(tonumber('zz', 36))
--
return table.concat({1, 2, 'x'}, ',')
--
return {('a,b'):find(',', 1, true), ('key:12'):match('(%a+):(%d+)')}
--
return (('a b c'):gsub(' ', '-'))
