package nvtools

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// defaultPipeDir is where daemon and clients meet if the environment says nothing
// (CUDA_MPS_PIPE_DIRECTORY).
const defaultPipeDir = "/tmp/nvidia-mps"

func pipeDir() string {
	if dir := os.Getenv("CUDA_MPS_PIPE_DIRECTORY"); dir != "" {
		return dir
	}
	return defaultPipeDir
}

func controlSocket(pipeDir string) string { return filepath.Join(pipeDir, "control") }

// dialPatience is how long a daemon may take to let somebody in.
const dialPatience = 5 * time.Second

func dial(pipeDir string) (net.Conn, error) {
	return (&net.Dialer{Timeout: dialPatience}).DialContext(context.Background(), "unix", controlSocket(pipeDir))
}

// client sends the daemon commands, a line each, and prints what it answers.
func client(std streams) int {
	conn, err := dial(pipeDir())
	if err != nil {
		fmt.Fprintln(std.err, "Cannot find MPS control daemon process")
		return 1
	}
	defer conn.Close()
	lines := bufio.NewScanner(std.in)
	answers := bufio.NewReader(conn)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		if _, err := fmt.Fprintln(conn, line); err != nil {
			fmt.Fprintln(std.err, "The MPS control daemon has ended")
			return 1
		}
		answer, err := answers.ReadString(endOfAnswer)
		if err != nil && line != "quit" {
			fmt.Fprintln(std.err, "The MPS control daemon has ended")
			return 1
		}
		if answer = strings.TrimSuffix(answer, string(endOfAnswer)); answer != "" {
			fmt.Fprintln(std.out, answer)
		}
	}
	return 0
}

// endOfAnswer follows every answer of the daemon.
const endOfAnswer = '\x00'

// Attach is what a CUDA program does: it is a client of the daemon of a pipe folder,
// from now on until it closes what it gets, or ends. The daemon starts a server for
// the first.
func Attach(pipeDir string) (io.Closer, error) {
	conn, err := dial(pipeDir)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "attach %d\n", os.Getpid()); err != nil {
		conn.Close()
		return nil, err
	}
	if answer, err := bufio.NewReader(conn).ReadString(endOfAnswer); err != nil {
		conn.Close()
		return nil, fmt.Errorf("the MPS daemon did not take this client: %q: %w", answer, err)
	}
	return conn, nil
}
