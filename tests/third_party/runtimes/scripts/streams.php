<?php
// Streams, of which one outlives the request, and sockets; with `import`, one that the sockets extension takes over.
$port = $_GET["port"];
function ask($stream, $rounds) {
    for ($n = 0; $n < $rounds; $n++) {
        $sent = str_repeat(chr(65 + $n % 26), 1 + $n * 7);
        fwrite($stream, $sent);
        for ($got = ""; strlen($got) < strlen($sent); $got .= $more) {
            $more = fread($stream, strlen($sent) - strlen($got));
            if ($more === false || $more === "") exit("round $n\n");
        }
        if ($got !== $sent) exit("wrong in round $n\n");
    }
}
function said($what) { echo var_export($what, true), "\n"; }

$kept = pfsockopen("127.0.0.1", $port);
ask($kept, 20);
$stream = stream_socket_client("tcp://127.0.0.1:$port");
stream_set_read_buffer($stream, 0);
ask($stream, 300);
stream_set_timeout($stream, 0, 30000);
said(fread($stream, 1));
said(stream_get_meta_data($stream)["timed_out"]);
if (isset($_GET["import"])) {
    $socket = socket_import_stream($stream);
    socket_set_option($socket, SOL_SOCKET, SO_RCVTIMEO, ["sec" => 20, "usec" => 0]);
    for ($n = 0; $n < 50; $n++) {
        if (socket_write($socket, "ping") !== 4) exit("written wrongly\n");
        $read = [$socket];
        $none = null;
        if (socket_select($read, $none, $none, 20) !== 1) exit("nothing comes\n");
        if (socket_read($socket, 4) !== "ping") exit("read wrongly\n");
    }
    socket_shutdown($socket, 1);
    said(socket_read($socket, 4));
}
$plain = socket_create(AF_INET, SOCK_STREAM, SOL_TCP);
said(socket_connect($plain, "127.0.0.1", $port));
for ($n = 0; $n < 300; $n++) {
    socket_send($plain, "pong", 4, 0);
    if (socket_recv($plain, $got, 4, MSG_WAITALL) !== 4 || $got !== "pong") exit("received wrongly\n");
}
socket_close($plain);
echo "done\n";
