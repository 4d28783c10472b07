package machine

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Run runs a command in the machine to its end, with the given streams. env is
// added to this program's environment; its PATH is where the command is looked
// for.
func (m Machine) Run(ctx context.Context, in io.Reader, out, errs io.Writer, env []string, args ...string) error {
	var command *exec.Cmd
	err := m.enter(func() error {
		env := append(os.Environ(), env...)
		program, err := lookPath(args[0], env)
		if err != nil {
			return err
		}
		command = exec.CommandContext(ctx, program, args[1:]...)
		command.Args[0] = args[0]
		command.Dir, command.Env = "/", env
		command.Stdin, command.Stdout, command.Stderr = in, out, errs
		return command.Start()
	})
	if err != nil {
		return fmt.Errorf("run %s in machine %s: %w", strings.Join(args, " "), m.Name, err)
	}
	return command.Wait()
}

// lookPath finds a program by the last PATH of an environment.
func lookPath(program string, env []string) (string, error) {
	if strings.Contains(program, "/") {
		return program, nil
	}
	var path string
	for _, variable := range env {
		if value, found := strings.CutPrefix(variable, "PATH="); found {
			path = value
		}
	}
	for _, folder := range filepath.SplitList(path) {
		candidate := filepath.Join(folder, program)
		if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("program %q is not found in %s", program, path)
}

// enter calls f on a thread that has joined the machine. Processes that f
// starts are in the machine. The thread ends with f.
func (m Machine) enter(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that nobody else gets it
		if err := m.join(); err != nil {
			result <- err
			return
		}
		result <- f()
	}()
	return <-result
}

func (m Machine) join() error {
	if !m.Init.Alive() {
		return fmt.Errorf("machine %s does not run", m.Name)
	}
	namespaces := []string{"pid", "uts", "net", "mnt"} // mnt last: it takes the others' files away
	var files []*os.File
	for _, namespace := range namespaces {
		file, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", m.Init.Pid, namespace))
		if err != nil {
			return err
		}
		defer file.Close()
		files = append(files, file)
	}
	// A thread can only change its mounts when it shares no folder with others.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave the program's folder: %w", err)
	}
	for i, file := range files {
		if err := unix.Setns(int(file.Fd()), 0); err != nil {
			return fmt.Errorf("join the machine's %s namespace: %w", namespaces[i], err)
		}
	}
	return nil
}
