package nvtools

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// control is nvidia-cuda-mps-control: without options the client.
func control(args []string, std streams) int {
	foreground, background := false, false
	faults := ownMachine().faults()
	for _, arg := range args {
		switch {
		case arg == "-f":
			foreground = true
		case arg == "-d":
			background = true
		case arg == "-multiuser-server" && !faults.SingleUser:
		default:
			fmt.Fprintf(std.err, "Unrecognized option %s\n", arg)
			return 1
		}
	}
	switch {
	case background:
		return detach(args, std)
	case foreground:
		return runDaemon(faults, std)
	}
	return client(std)
}

// detach starts the daemon in the background.
func detach(args []string, std streams) int {
	exe, err := os.Executable()
	if err == nil {
		args = append(slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "-d" }), "-f")
		cmd := exec.Command(exe, args...) //nolint:noctx // it stays when this program ends
		cmd.Args[0] = ControlProgram
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(std.err, err)
		return 1
	}
	return 0
}

// daemon is one that runs.
type daemon struct {
	log *os.File

	// mu protects what follows.
	mu       sync.Mutex
	settings *settings
	// clients are PIDs of attached programs, one per connection.
	clients []int
	// server is there from the first client on.
	server   *exec.Cmd
	quitting bool
	ended    chan struct{}
}

func runDaemon(faults Faults, std streams) int {
	if faults.Start == startFails {
		fmt.Fprintln(std.err, "MPS control daemon: simulated failure")
		return 1
	}
	log, err := openLog()
	if err != nil {
		fmt.Fprintln(std.err, "Unable to open the log file: ", err)
		return 1
	}
	defer log.Close()
	delay := defaultStartDelay
	if faults.StartDelay != nil {
		delay = faults.StartDelay.Duration
	}
	time.Sleep(delay)
	socket := controlSocket(pipeDir())
	if err := os.MkdirAll(filepath.Dir(socket), 0o777); err != nil {
		fmt.Fprintln(std.err, err)
		return 1
	}
	listener, err := listen(socket)
	if err != nil {
		fmt.Fprintln(std.err, err)
		return 1
	}
	d := &daemon{log: log, settings: newSettings(), ended: make(chan struct{})}
	d.settings.ignore = faults.IgnoreLimits
	d.note("Starting control daemon using socket " + socket)
	go d.accept(listener, faults.Start == startHangs)
	<-d.ended
	d.note("Exit")
	_ = listener.Close()
	return 0
}

// listen refuses a folder that another daemon serves; a socket that nobody answers at
// is what one left that died.
func listen(socket string) (net.Listener, error) {
	if conn, err := dial(filepath.Dir(socket)); err == nil {
		conn.Close()
		return nil, errors.New("An instance of this daemon is already running") //nolint:revive,staticcheck // NVIDIA's words
	}
	_ = os.Remove(socket)
	listener, err := new(net.ListenConfig).Listen(context.Background(), "unix", socket)
	if err != nil {
		return nil, err
	}
	return listener, os.Chmod(socket, 0o666) // clients of every user
}

// defaultLogDir is where a daemon writes if the environment says nothing
// (CUDA_MPS_LOG_DIRECTORY).
const defaultLogDir = "/var/log/nvidia-mps"

func openLog() (*os.File, error) {
	dir := os.Getenv("CUDA_MPS_LOG_DIRECTORY")
	if dir == "" {
		dir = defaultLogDir
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(dir, "control.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

func (d *daemon) note(text string) {
	fmt.Fprintf(d.log, "[%s Control %5d] %s\n", time.Now().Format("2006-01-02 15:04:05.000"), os.Getpid(), text)
}

// accept takes connections; one that hangs says nothing to any.
func (d *daemon) accept(listener net.Listener, hangs bool) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		if !hangs {
			go d.converse(conn)
		}
	}
}

// converse answers one connection's commands until it is closed.
func (d *daemon) converse(conn net.Conn) {
	defer conn.Close()
	attached := 0
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "attach "); ok && attached == 0 {
			attached, _ = strconv.Atoi(rest)
			fmt.Fprint(conn, d.attach(attached)+string(endOfAnswer))
			continue
		}
		fmt.Fprint(conn, d.answer(line)+string(endOfAnswer))
	}
	if attached != 0 {
		d.detach(attached)
	}
	d.endIfTold()
}

func (d *daemon) answer(line string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if text, ok := d.settings.answer(line); ok {
		return text
	}
	words := strings.Fields(line)
	switch words[0] {
	case "get_server_list":
		if d.server != nil {
			return strconv.Itoa(d.server.Process.Pid)
		}
		return ""
	case "get_client_list":
		return d.clientList()
	case "ps":
		return "PID       ID    SERVER    DEVICE             NAMESPACE    COMMAND" + d.clientTable()
	case "quit":
		d.quitting = true
		return ""
	}
	return "Unrecognized command " + strconv.Quote(words[0])
}

func (d *daemon) clientList() string {
	pids := make([]string, 0, len(d.clients))
	for _, pid := range d.clients {
		pids = append(pids, strconv.Itoa(pid))
	}
	return strings.Join(pids, "\n")
}

func (d *daemon) clientTable() string {
	var table strings.Builder
	for i, pid := range d.clients {
		fmt.Fprintf(&table, "\n%-9d %-5d %-9d", pid, i, d.server.Process.Pid)
	}
	return table.String()
}

// attach takes a client, and answers with what holds for it: MiB of the first GPU, percent of the
// processors, and the GPUs that the daemon serves.
func (d *daemon) attach(pid int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server == nil {
		d.server = d.startServer()
	}
	d.clients = append(d.clients, pid)
	d.note(fmt.Sprintf("NEW CLIENT %d from user %d: Server is ready", pid, os.Getuid()))
	return fmt.Sprintf("%d %s %s", d.settings.memory[0], formatPercentage(d.settings.percentage), os.Getenv("CUDA_VISIBLE_DEVICES"))
}

// startServer runs the program beside this one.
func (d *daemon) startServer() *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		return nil
	}
	cmd := exec.Command(filepath.Join(filepath.Dir(exe), ServerProgram)) //nolint:noctx // ended in endIfTold
	if err := cmd.Start(); err != nil {
		d.note("Failed to start the server: " + err.Error())
		return nil
	}
	d.note(fmt.Sprintf("Starting new server %d for user %d", cmd.Process.Pid, os.Getuid()))
	return cmd
}

func (d *daemon) detach(pid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.clients, pid); i >= 0 {
		d.clients = slices.Delete(d.clients, i, i+1)
	}
	d.note(fmt.Sprintf("Client %d disconnected", pid))
}

// endIfTold ends the daemon that was told to quit when its last client has gone, and
// its server with it.
func (d *daemon) endIfTold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.quitting || len(d.clients) > 0 {
		return
	}
	if d.server != nil {
		_ = d.server.Process.Kill()
		_ = d.server.Wait()
		d.server = nil
	}
	select {
	case <-d.ended:
	default:
		close(d.ended)
	}
}
