package machine

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestForward(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	go func() { // answers when the client has said all, as exec streams do
		conn, err := server.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		said, _ := io.ReadAll(conn)
		_, _ = conn.Write(append([]byte("you said: "), said...))
	}()
	front, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer front.Close()
	go forward(front, server.Addr().String())

	client, err := net.Dial("tcp", front.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	_, err = client.Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, client.(*net.TCPConn).CloseWrite())
	answer, err := io.ReadAll(client)
	require.NoError(t, err)
	require.Equal(t, "you said: hello", string(answer))
}

func TestForwardToNobody(t *testing.T) {
	front, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer front.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	go forward(front, gone.Addr().String())

	client, err := net.Dial("tcp", front.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	_, err = io.ReadAll(client)
	require.NoError(t, err, "the connection is closed, not kept waiting")
}
