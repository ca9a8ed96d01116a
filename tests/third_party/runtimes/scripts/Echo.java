// A selector's echo server. A connection whose other end is shut down gets the rest, and is closed.
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;

public class Echo {
    public static void main(String[] arguments) throws Exception {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                try {
                    if (key.isAcceptable()) {
                        accept(selector, listener);
                    } else {
                        echo(key);
                    }
                } catch (IOException e) {
                    key.channel().close();
                }
            }
            selector.selectedKeys().clear();
        }
    }

    static void accept(Selector selector, ServerSocketChannel listener) throws IOException {
        SocketChannel channel = listener.accept();
        channel.configureBlocking(false);
        channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
        channel.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(65536));
    }

    static void echo(SelectionKey key) throws IOException {
        SocketChannel channel = (SocketChannel) key.channel();
        ByteBuffer buffer = (ByteBuffer) key.attachment();
        boolean ended = key.isReadable() && channel.read(buffer) < 0;
        buffer.flip();
        do {
            channel.write(buffer);
        } while (ended && buffer.hasRemaining());
        buffer.compact();
        if (ended) {
            channel.close();
            return;
        }
        int read = buffer.hasRemaining() ? SelectionKey.OP_READ : 0;
        key.interestOps(read | (buffer.position() > 0 ? SelectionKey.OP_WRITE : 0));
    }
}
