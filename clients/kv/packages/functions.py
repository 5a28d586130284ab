"""Functions and scripts through redis-py, the same against any server: prints what each call answers.

    python3 functions.py HOST PORT > one; python3 functions.py HOST OTHER > other; diff one other
"""

import sys

import redis

client = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]), decode_responses=True)

LIBRARY = """#!lua name=lib
redis.register_function('put', function(keys, args) return redis.call('set', keys[1], args[1]) end)
redis.register_function{function_name='look', callback=function(keys) return redis.call('get', keys[1]) end,
  flags={'no-writes'}, description='looks'}
"""


def show(*args):
    try:
        answer = client.execute_command(*args)
    except redis.exceptions.ResponseError as error:
        answer = f"error: {error}"
    print(args[0], args[1] if len(str(args[1])) < 30 else "...", "->", answer)


client.flushall()
client.function_flush()
for text in (
    "return 1",
    "#!lua name=x",
    "#!lua\nreturn 1",
    "#!js name=x\nreturn 1",
    "#!lua name=x foo=1\nreturn 1",
    "#!lua name=x name=y\nreturn 1",
    "#!lua name=a-b\nreturn 1",
    "#!lua name=x\nreturn 1",
    "#!lua name=x\nreturn 1 +",
    "#!lua name=x\nredis.call('set', 'k', 'v')",
    "#!lua name=x\nreturn redis.pcall('get', 'k')",
    "#!lua name=x\nreturn redis.setresp(3)",
    "#!lua name=x\nreturn redis.set_repl(3)",
    "#!lua name=x\nreturn math.random()",
    "#!lua name=x\nredis.register_function('f', 1)",
    "#!lua name=x\nredis.register_function(1, function() end)",
    "#!lua name=x\nredis.register_function('', function() end)",
    "#!lua name=x\nredis.register_function('a b', function() end)",
    "#!lua name=x\nredis.register_function('f')",
    "#!lua name=x\nredis.register_function()",
    "#!lua name=x\nredis.register_function('f', function() end, 1)",
    "#!lua name=x\nredis.register_function{}",
    "#!lua name=x\nredis.register_function{function_name='f'}",
    "#!lua name=x\nredis.register_function{callback=function() end}",
    "#!lua name=x\nredis.register_function{function_name='f', callback=1}",
    "#!lua name=x\nredis.register_function{function_name=1, callback=function() end}",
    "#!lua name=x\nredis.register_function{function_name='f', callback=function() end, flags=1}",
    "#!lua name=x\nredis.register_function{function_name='f', callback=function() end, flags={'no'}}",
    "#!lua name=x\nredis.register_function{function_name='f', callback=function() end, foo=1}",
    "#!lua name=x\nredis.register_function{function_name='f', callback=function() end, description=1}",
    "#!lua name=x\nredis.register_function{[1]='f'}",
    "#!lua name=x\nfoo = 1",
    "#!lua name=x\nerror('mine')",
    "#!lua name=x\nerror({err='MINE'})",
    "#!lua name=x\nfor i = 1, 2 do redis.register_function('f', function() end) end",
    LIBRARY,
    LIBRARY,
    "#!lua name=other\nredis.register_function('put', function() end)",
    "#!lua name=other\nredis.register_function('more', function() return redis.register_function('x', function() end) end)",
    "#!lua name=third\nredis.register_function('raises', function() error('mine') end)\n"
    "redis.register_function('global', function() foo = 1 end)\n"
    "redis.register_function('none', function() return nothing end)\n"
    "redis.register_function('keys', function() return KEYS end)\n"
    "redis.register_function('wrong', function() return redis.call('incr', 'k', 1) end)",
):
    show("FUNCTION LOAD", text)
for call in (
    ("FCALL", "put", 1, "k", "v"),
    ("FCALL", "PUT", 1, "k", "v"),
    ("FCALL", "look", 1, "k"),
    ("FCALL_RO", "look", 1, "k"),
    ("FCALL_RO", "put", 1, "k", "v"),
    ("FCALL", "no", 0),
    ("FCALL", "put", "x"),
    ("FCALL", "put", 2, "k"),
    ("FCALL", "put", -1),
    ("FCALL", "more", 0),
    ("FCALL", "raises", 0),
    ("FCALL", "global", 0),
    ("FCALL", "none", 0),
    ("FCALL", "keys", 0),
    ("FCALL", "wrong", 0),
    ("FUNCTION LIST", "LIBRARYNAME", "l*"),
    ("FUNCTION LIST", "LIBRARYNAME", "l*", "WITHCODE"),
    ("FUNCTION LIST", "LIBRARYNAME"),
    ("FUNCTION LIST", "FOO"),
    ("FUNCTION LIST", "WITHCODE", "WITHCODE"),
    ("FUNCTION DELETE", "none"),
    ("FUNCTION DELETE", "third"),
    ("FUNCTION FLUSH", "FOO"),
    ("FUNCTION FLUSH", "SYNC", "ASYNC"),
    ("FUNCTION RESTORE", "xx"),
    ("FUNCTION RESTORE", "xx", "FOO"),
    ("FUNCTION LOAD", "FOO", LIBRARY),
    ("FUNCTION LOAD", "REPLACE", "x", LIBRARY),
    ("FUNCTION NO", "x"),
    ("FUNCTION KILL", "x"),
    ("SCRIPT KILL", "x"),
    ("EVAL", "#!lua\nreturn 1", 0),
    ("EVAL", "#!lua flags=no-writes\nreturn redis.call('set', 'k', 'v')", 0),
    ("EVAL", "#!lua name=x\nreturn 1", 0),
    ("EVAL_RO", "return redis.call('set', 'k', 'v')", 0),
    ("EVAL_RO", "#!lua\nreturn 1", 0),
    ("EVALSHA_RO", "0" * 40, 0),
):
    show(*call)
dump = redis.Redis(host=sys.argv[1], port=int(sys.argv[2])).execute_command("FUNCTION DUMP")
print("FUNCTION STATS", client.execute_command("FUNCTION STATS"))
for policy in ("APPEND", "REPLACE", "FLUSH"):
    show("FUNCTION RESTORE", dump, policy)
show("FCALL", "look", 1, "k")
