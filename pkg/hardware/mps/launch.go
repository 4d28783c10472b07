package mps

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/lists"
)

// LaunchCommand is the argument with which this program is run again to become a
// daemon, or to ask one; what Launch wants follows it. A program with a supervisor
// calls Launch for it before it does anything else.
const LaunchCommand = "mps-launch"

// Ends of the launcher that the supervisor tells apart.
const (
	exitFailed = 1
	// exitRuns: the daemon runs already.
	exitRuns = 3
	// exitNoProgram: the driver has no MPS.
	exitNoProgram = 4
)

// launchPatience is how long the launcher waits for another one.
const launchPatience = 15 * time.Second

var (
	errRuns      = errors.New("the MPS daemon runs already")
	errNoProgram = errors.New("a program is missing")
)

// launch is one run of the launcher.
type launch struct {
	dir        folder
	hostRoot   string
	driverRoot string
	// ask makes it ask the daemon, not become it.
	ask bool
	// unmount makes it take away what is mounted for the containers on the host, and end.
	unmount bool
	// shmSize is the size of their /dev/shm, in bytes.
	shmSize int64
	// program is another one of the driver's to become, for which there is no folder.
	program string
	// options are the program's own.
	options []string
}

// arguments are what Launch reads again.
func (l launch) arguments() []string {
	args := []string{"--dir=" + string(l.dir), "--host-root=" + l.hostRoot, "--driver-root=" + l.driverRoot, fmt.Sprintf("--shm-size=%d", l.shmSize)}
	if l.unmount {
		args = append(args, "--unmount")
	}
	if l.ask {
		args = append(args, "--ask")
	}
	if l.program != "" {
		args = append(args, "--program="+l.program)
	}
	return append(append(args, "--"), l.options...)
}

func parseLaunch(args []string) (launch, error) {
	var l launch
	flags := flag.NewFlagSet(LaunchCommand, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar((*string)(&l.dir), "dir", "", "")
	flags.StringVar(&l.hostRoot, "host-root", "/", "")
	flags.StringVar(&l.driverRoot, "driver-root", "/", "")
	flags.BoolVar(&l.ask, "ask", false, "")
	flags.BoolVar(&l.unmount, "unmount", false, "")
	flags.Int64Var(&l.shmSize, "shm-size", DefaultShmSize, "")
	flags.StringVar(&l.program, "program", "", "")
	if err := flags.Parse(args); err != nil {
		return l, err
	}
	if l.program == "" && !filepath.IsAbs(string(l.dir)) {
		return l, fmt.Errorf("--dir is %q: the supervisor gives the daemon's folder", string(l.dir))
	}
	l.options = flags.Args()
	return l, nil
}

// Launch makes this process a control daemon, or a client of one, and returns only
// if that fails, or if there is no program to become: with what the process should end
// with.
func Launch(args []string) (exitCode int) {
	// The namespaces that are entered are this thread's, and it is this thread that
	// becomes the daemon.
	runtime.LockOSThread()
	l, err := parseLaunch(args)
	if err == nil {
		err = l.run()
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	switch {
	case errors.Is(err, errRuns):
		return exitRuns
	case errors.Is(err, errNoProgram):
		return exitNoProgram
	}
	return exitFailed
}

func (l launch) run() error {
	if l.program != "" {
		return l.becomeProgram()
	}
	if l.unmount {
		if err := l.joinHost(); err != nil {
			return err
		}
		return l.dir.unmount()
	}
	if l.ask {
		return l.become(nil)
	}
	ctx, cancel := context.WithTimeout(context.Background(), launchPatience)
	defer cancel()
	// Let go of when this process becomes the daemon. Whoever has it next finds the
	// daemon by its pid.
	unlock, err := l.dir.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	spec, err := l.dir.spec()
	if err != nil {
		return fmt.Errorf("launch MPS daemon %s: %w", l.dir.id(), err)
	}
	before, alive, err := l.dir.process()
	switch {
	case err != nil:
		return err
	case alive:
		return errRuns
	}
	if err := before.killServers(); err != nil {
		return fmt.Errorf("launch MPS daemon %s in the place of one that has died: %w", spec.ID, err)
	}
	// From here on whoever stops the daemon finds this process.
	self, err := identify(os.Getpid())
	if err != nil {
		return err
	}
	if err := l.dir.write("pid", self); err != nil {
		return fmt.Errorf("launch MPS daemon %s: %w", spec.ID, err)
	}
	uuids := lists.Map(spec.Devices, func(d Device) string { return d.UUID })
	return l.become(uuids)
}

// emptyFolder removes what a daemon that has died left in its pipe folder. The
// folder itself stays: containers have it mounted.
func emptyFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// become goes to where the daemon lives and runs NVIDIA's program in place of this
// one.
func (l launch) become(uuids []string) error {
	if err := l.joinHost(); err != nil {
		return err
	}
	if !l.ask {
		if err := l.prepareShared(); err != nil {
			return err
		}
	}
	if err := leaveMounts(); err != nil {
		return err
	}
	if !l.ask {
		if err := l.leavePod(); err != nil {
			return err
		}
	}
	place, err := l.enterDriver()
	if err != nil {
		return err
	}
	program, err := place.find(controlProgram)
	if err != nil {
		return err
	}
	if !l.ask {
		if err := place.reopenStreams(); err != nil {
			return err
		}
	}
	env := append(place.environment(program),
		"CUDA_MPS_PIPE_DIRECTORY="+place.dir.pipe(), "CUDA_MPS_LOG_DIRECTORY="+place.dir.log())
	if len(uuids) > 0 {
		env = append(env, "CUDA_VISIBLE_DEVICES="+strings.Join(uuids, ","))
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", program, unix.Exec(program, append([]string{controlProgram}, l.options...), env))
}

// becomeProgram runs a program of the driver on the host, in place of this one.
func (l launch) becomeProgram() error {
	if err := l.joinHost(); err != nil {
		return err
	}
	if err := leaveMounts(); err != nil {
		return err
	}
	place, err := l.enterDriver()
	if err != nil {
		return err
	}
	program, err := place.find(l.program)
	if err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", program, unix.Exec(program, append([]string{l.program}, l.options...), place.environment(program)))
}

// prepareShared makes the daemon's folders on the host what containers need of them,
// before the daemon has mounts of its own.
func (l launch) prepareShared() error {
	for dir, size := range l.dir.mounts(l.shmSize) {
		if err := mountTmpfs(dir, size); err != nil {
			return err
		}
	}
	if err := emptyFolder(l.dir.pipe()); err != nil {
		return err
	}
	if err := labelForContainers("/sys/fs/selinux", l.dir.pipe(), l.dir.shm()); err != nil {
		// The policy of the host may allow it without, and else says what is missing.
		fmt.Fprintln(os.Stderr, err)
	}
	return nil
}

// leavePod moves this process out of the control groups of the plugin's pod, which
// end with it. Those that it goes to are written down before they are made.
func (l launch) leavePod() error {
	moves, err := ownMoves(l.dir.id())
	if err != nil {
		return fmt.Errorf("find the control groups of the plugin: %w", err)
	}
	var made []string
	for _, m := range moves {
		if m.make {
			made = append(made, m.to)
		}
	}
	if err := l.dir.write("cgroups", controlGroups{Groups: made}); err != nil {
		return err
	}
	for _, m := range moves {
		if err := m.enter(); err != nil {
			return err
		}
	}
	return nil
}
