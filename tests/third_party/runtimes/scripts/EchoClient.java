// Asks an echo server by java's kinds of sockets, and has calls ended by a close and by an interrupt.
import java.io.DataInputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.AsynchronousSocketChannel;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;

public class EchoClient {
    static final int ROUNDS = 300;
    static InetSocketAddress server;

    public static void main(String[] arguments) throws Exception {
        server = new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0]));
        if (arguments.length > 1) {
            ends();
        } else {
            stream();
            timeout();
            asynchronous();
            selectorWokenUp();
        }
        Socket kept = connected();
        System.out.println("idle");
        System.in.read();
        ask(kept, 1);
        kept.close();
        System.out.println("done");
    }

    static void ends() throws Exception {
        for (String how : new String[] {"read", "write"}) {
            for (int n = 0; n < 5; n++) {
                socketClosed(how);
                channelEnded(how, false);
                channelEnded(how, true);
            }
        }
    }

    static Socket connected() throws Exception {
        Socket socket = new Socket();
        socket.connect(server);
        socket.setTcpNoDelay(true);
        socket.setSoTimeout(20_000);
        ask(socket, ROUNDS);
        return socket;
    }

    static void ask(Socket socket, int rounds) throws Exception {
        DataInputStream in = new DataInputStream(socket.getInputStream());
        for (int n = 0; n < rounds; n++) {
            byte[] sent = new byte[1 + n * 7];
            sent[n * 7] = (byte) n;
            socket.getOutputStream().write(sent);
            byte[] got = new byte[sent.length];
            in.readFully(got);
            if (!java.util.Arrays.equals(sent, got)) {
                throw new AssertionError("round " + n);
            }
        }
    }

    /** What a call that another thread ends throws. */
    static String thrown(Callable<?> call) {
        try {
            return "returned " + call.call();
        } catch (Exception e) {
            // A write may find the end between two calls.
            return e.toString().replace("AsynchronousCloseException", "ClosedChannelException").replace("is closed", "closed");
        }
    }

    static String later(Callable<?> call, Callable<?> end) throws Exception {
        FutureTask<String> task = new FutureTask<>(() -> thrown(call));
        Thread thread = new Thread(task);
        thread.setDaemon(true);  // one that hangs does not keep the program
        thread.start();
        Thread.sleep(30);
        if (end == null) {
            thread.interrupt();
        } else {
            end.call();
        }
        return task.get(20, TimeUnit.SECONDS);
    }

    static void stream() throws Exception {
        Socket socket = connected();
        MessageDigest sent = MessageDigest.getInstance("MD5");
        MessageDigest got = MessageDigest.getInstance("MD5");
        Thread sender = new Thread(() -> {
            try {
                OutputStream out = socket.getOutputStream();
                for (int n = 1; n <= 200; n++) {
                    byte[] part = new byte[n * 997];
                    java.util.Arrays.fill(part, (byte) n);
                    sent.update(part);
                    out.write(part);
                }
                socket.shutdownOutput();
            } catch (Exception e) {
                System.out.println(e);
            }
        });
        sender.start();
        InputStream in = socket.getInputStream();
        byte[] buffer = new byte[30_000];
        for (int n; (n = in.read(buffer)) > 0;) {
            got.update(buffer, 0, n);
        }
        sender.join();
        boolean same = HexFormat.of().formatHex(sent.digest()).equals(HexFormat.of().formatHex(got.digest()));
        System.out.println("stream " + same);
        socket.close();
    }

    static void timeout() throws Exception {
        Socket socket = connected();
        socket.setSoTimeout(20);
        for (int n = 0; n < 3; n++) {
            try {
                System.out.println("read " + socket.getInputStream().read());
            } catch (SocketTimeoutException e) {
                System.out.println(e.getMessage());
            }
            socket.setSoTimeout(20_000);
            ask(socket, 3);
            socket.setSoTimeout(20);
        }
        socket.close();
    }

    static void asynchronous() throws Exception {
        AsynchronousSocketChannel channel = AsynchronousSocketChannel.open();
        channel.connect(server).get();
        for (int n = 0; n < ROUNDS; n++) {
            ByteBuffer sent = ByteBuffer.allocate(2000);
            while (sent.hasRemaining()) {
                channel.write(sent).get(20, TimeUnit.SECONDS);
            }
            ByteBuffer got = ByteBuffer.allocateDirect(2000);
            while (got.hasRemaining()) {
                channel.read(got).get(20, TimeUnit.SECONDS);
            }
        }
        System.out.println("asynchronous " + later(
            () -> channel.read(ByteBuffer.allocate(1)).get(), () -> { channel.close(); return null; }));
    }

    static void socketClosed(String how) throws Exception {
        Socket socket = connected();
        socket.setSoTimeout(0);
        Callable<?> end = () -> { socket.close(); return null; };
        Callable<?> call = how.equals("read") ? () -> socket.getInputStream().read() : () -> {
            while (true) {
                socket.getOutputStream().write(new byte[100_000]);
            }
        };
        System.out.println("socket, " + how + ": " + later(call, end));
    }

    static void channelEnded(String how, boolean interrupted) throws Exception {
        SocketChannel channel = SocketChannel.open(server);
        ask(channel.socket(), ROUNDS);
        Callable<?> end = interrupted ? null : () -> { channel.close(); return null; };
        Callable<?> call = how.equals("read") ? () -> channel.read(ByteBuffer.allocate(1)) : () -> {
            while (true) {
                channel.write(ByteBuffer.allocate(100_000));
            }
        };
        System.out.println("channel, " + how + ": " + later(call, end));
        channel.close();
    }

    static void selectorWokenUp() throws Exception {
        SocketChannel channel = SocketChannel.open(server);
        ask(channel.socket(), ROUNDS);
        Selector selector = Selector.open();
        channel.configureBlocking(false);
        channel.register(selector, SelectionKey.OP_READ);
        System.out.println("selector " + later(() -> selector.select(), () -> selector.wakeup()));
        channel.write(ByteBuffer.allocate(1));
        System.out.println("selector " + selector.select(20_000));
        channel.read(ByteBuffer.allocate(1));
        System.out.println("selector " + selector.select(20));
        System.out.println("selector " + later(
            () -> selector.select(), () -> { channel.close(); return selector.wakeup(); }));
        selector.close();
    }
}
