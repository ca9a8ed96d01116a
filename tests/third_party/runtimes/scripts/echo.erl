%% gen_tcp: an echo server and a client of it, in all modes of `active`, by inet's two back ends.
-module(echo).
-export([serve/1, client/1]).

serve([Port, Backend]) ->
    {ok, Listener} = gen_tcp:listen(list_to_integer(Port), [{inet_backend, list_to_atom(Backend)} | options()]),
    accept(Listener).

options() -> [binary, {ip, {127, 0, 0, 1}}, {active, false}, {reuseaddr, true}, {nodelay, true}, {backlog, 64}].

accept(Listener) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Pid = spawn(fun() -> receive go -> echo(Socket) end end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Listener).

echo(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Bytes} -> gen_tcp:send(Socket, Bytes), echo(Socket);
        {error, _} -> gen_tcp:close(Socket)
    end.

connected(Port, Backend, Options) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port,
                                   [{inet_backend, Backend}, binary, {active, false}, {nodelay, true}]),
    ask(Socket, 300),
    ok = inet:setopts(Socket, Options),
    Socket.

ask(Socket, Rounds) ->
    [begin
         Sent = binary:copy(<<N:8>>, 1 + N * 7),
         ok = gen_tcp:send(Socket, Sent),
         {ok, Sent} = gen_tcp:recv(Socket, byte_size(Sent), 20000)
     end || N <- lists:seq(0, Rounds - 1)].

client([Word, Name]) ->
    Port = list_to_integer(Word),
    Backend = list_to_atom(Name),
    stream(Port, Backend),
    Passive = connected(Port, Backend, []),
    io:format("~p~n", [gen_tcp:recv(Passive, 1, 30)]),
    ask(Passive, 3),
    gen_tcp:close(Passive),
    io:format("~p~n", [gen_tcp:send(Passive, <<"x">>)]),
    [begin
         Socket = connected(Port, Backend, [{active, Mode}, {packet, 4}]),
         [begin
              Sent = binary:copy(<<N:8>>, N * 10),
              ok = gen_tcp:send(Socket, Sent),
              receive {tcp, Socket, Sent} -> ok after 20000 -> io:format("lost ~p~n", [N]) end,
              case Mode of once -> inet:setopts(Socket, [{active, once}]); _ -> ok end
          end || N <- lists:seq(1, 200)],
         gen_tcp:shutdown(Socket, write),
         inet:setopts(Socket, [{active, once}]),
         receive {tcp_closed, Socket} -> io:format("~p closed~n", [Mode]) after 20000 -> io:format("stays~n") end
     end || Mode <- [once, true]],
    Kept = connected(Port, Backend, []),
    io:format("idle~n"),
    io:get_line(""),
    ask(Kept, 1),
    io:format("done~n"),
    halt(0).

stream(Port, Backend) ->
    Socket = connected(Port, Backend, []),
    Parts = [binary:copy(<<N:8>>, N * 997) || N <- lists:seq(1, 200)],
    spawn_link(fun() ->
                   [ok = gen_tcp:send(Socket, Part) || Part <- Parts],
                   gen_tcp:shutdown(Socket, write)
               end),
    io:format("stream ~p~n", [erlang:md5(Parts) == received(Socket, erlang:md5_init())]).

received(Socket, Sum) ->
    case gen_tcp:recv(Socket, 0, 20000) of
        {ok, Bytes} -> received(Socket, erlang:md5_update(Sum, Bytes));
        {error, closed} -> erlang:md5_final(Sum)
    end.
