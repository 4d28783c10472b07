package kmod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/renameio/v2"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/sleep"
)

const (
	// unloadPatience is how long it may take to take a driver out. AMD's Device Config
	// Manager names 30 s for it and gives it 5 min (KMMDriverRecoveryUnloadTimeout and
	// KMMDriverRecoveryTimeout in ROCm/device-config-manager,
	// pkg/config_manager/globals/constants.go); after 120 s in one call the kernel
	// reports a task as hung (hung_task_timeout_secs).
	unloadPatience = 100 * time.Second
	// loadPatience is how long one try to put it in may take, which resets all GPUs.
	// The same program waits 5 min for it (KMMDriverRecoveryTimeout).
	loadPatience = 5 * time.Minute
	// loadTries is how often it is tried.
	loadTries = 3
	// lookPause is LookPause when Module does not say (KMMDriverRecoveryCheckInterval,
	// ibid.).
	lookPause = 5 * time.Second
)

// Module is a kernel module of the host.
type Module struct {
	// Name is the module's: "amdgpu".
	Name string
	// Run runs a program of the host in the host's namespaces, and returns what it
	// says. It ends the program with ctx.
	Run func(ctx context.Context, program string, args ...string) ([]byte, error)
	// ReadFile reads a file of the host, by the host's name: /sys/module/….
	ReadFile func(name string) ([]byte, error)
	// Manager brings the module where modprobe does not. Nil: there is none.
	Manager Manager
	// Marker is a file of ours that is there while the module is out. It must not
	// outlive the plugin's data.
	Marker string
	// UnloadPatience and LoadPatience are how long each may take; zero: 100 s and
	// 5 min.
	UnloadPatience, LoadPatience time.Duration
	// LookPause is the time between two looks at a module that somebody else loads,
	// and between two tries; zero: 5 s.
	LookPause time.Duration
	// Logger hears of tries that failed. The zero value is silent.
	Logger klog.Logger
}

// Manager is somebody else who loads the module on this node.
type Manager interface {
	// Manages tells whether it does.
	Manages(ctx context.Context) (bool, error)
	// PutIn has it load the module again. It returns when that is asked for.
	PutIn(ctx context.Context) error
}

// Reload takes the module out and puts it in again. A module in use is left alone:
// gpu.ErrInUse. Once it is out it is put in, also when ctx has ended: then Reload
// returns later than ctx, but no later than LoadPatience for each of three tries. If
// it cannot be put in the error says so, and Resume, or another Reload, tries again.
func (m *Module) Reload(ctx context.Context) error {
	unlock, err := m.lock()
	if err != nil {
		return fmt.Errorf("nothing was done to %s: %w", m.Name, err)
	}
	defer unlock()
	managed, err := m.managed(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("nothing was done to %s: %w", m.Name, err)
	}
	if err := m.mark(managed); err != nil {
		return err
	}
	failed := m.takeOut(ctx, managed)
	if failed != nil {
		switch now := m.settle(ctx); now {
		case live:
			if hung := (*hungError)(nil); errors.As(failed, &hung) {
				return failed // takeOut puts it in when it has come out after all
			}
			return errors.Join(failed, m.unmark())
		case absent:
		default:
			return fmt.Errorf("%w; the kernel says that %s is %s, neither in nor out: reboot the node", failed, m.Name, now)
		}
	}
	return errors.Join(failed, m.putIn(context.WithoutCancel(ctx), managed))
}

// Resume puts the module in if a Reload that took it out did not end. Call it when
// the plugin starts, and as long as there is no driver. While a Reload is at it, of this
// process or another, nothing is done: that is an error.
func (m *Module) Resume(ctx context.Context) error {
	if _, err := os.Stat(m.Marker); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unlock, err := m.lock()
	if err != nil {
		return err
	}
	defer unlock()
	text, err := os.ReadFile(m.Marker)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look whether %s was left out: %w", m.Name, err)
	}
	return m.putIn(ctx, strings.TrimSpace(string(text)) == managedMark)
}

// lock keeps other processes from taking the module out, or putting it in, meanwhile:
// during a rolling update two plugins are on the node, and one that starts must not
// take the marker of the other's Reload for one that was left behind. The kernel lets
// go of the lock when a process dies.
func (m *Module) lock() (unlock func(), err error) {
	lock := flock.New(m.Marker + lockSuffix)
	switch locked, err := lock.TryLock(); {
	case err != nil:
		return nil, fmt.Errorf("lock kernel module %s with %s: %w", m.Name, lock, err)
	case !locked:
		return nil, fmt.Errorf("kernel module %s is being loaded anew, by who holds %s", m.Name, lock)
	}
	return func() { lock.Close() }, nil
}

// lockSuffix is put behind the marker's name.
const lockSuffix = ".lock"

// What the marker says.
const (
	managedMark   = "managed"
	unmanagedMark = "modprobe"
)

func (m *Module) mark(managed bool) error {
	text := unmanagedMark
	if managed {
		text = managedMark
	}
	if err := renameio.WriteFile(m.Marker, []byte(text+"\n"), 0o644); err != nil {
		return fmt.Errorf("write down that %s is taken out: %w", m.Name, err)
	}
	return nil
}

func (m *Module) unmark() error {
	if err := os.Remove(m.Marker); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write down that %s is in again: %w", m.Name, err)
	}
	return nil
}

func (m *Module) managed(ctx context.Context) (bool, error) {
	if m.Manager == nil {
		return false, nil
	}
	return m.Manager.Manages(ctx)
}

// state is what the kernel says of the module: live, coming, going (Linux'
// kernel/module/sysfs.c, show_initstate), or nothing when it is not there.
type state string

const (
	absent state = ""
	live   state = "live"
)

func (m *Module) state() (state, error) {
	text, err := m.ReadFile(path.Join("/sys/module", m.Name, "initstate"))
	if errors.Is(err, fs.ErrNotExist) {
		return absent, nil
	}
	if err != nil {
		return absent, fmt.Errorf("look whether %s is loaded: %w", m.Name, err)
	}
	return state(strings.TrimSpace(string(text))), nil
}

// settle waits until the module is in or out, if it is between the two, and says
// which. What cannot be read counts as out: to load what is loaded does no harm.
func (m *Module) settle(ctx context.Context) state {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.loadPatience())
	defer cancel()
	for {
		now, err := m.state()
		if err != nil || now == live || now == absent || sleep.For(ctx, m.lookPause()) != nil {
			return now
		}
	}
}

func (m *Module) loadPatience() time.Duration { return cmp.Or(m.LoadPatience, loadPatience) }

func (m *Module) lookPause() time.Duration { return cmp.Or(m.LookPause, lookPause) }

// takeOut takes the module out, if nobody uses it.
func (m *Module) takeOut(ctx context.Context, managed bool) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(m.UnloadPatience, unloadPatience))
	defer cancel()
	said, err := m.host(ctx, "modprobe", "-r", m.Name)
	// modprobe finds only modules in the host's folders, and an operator brings its own:
	// rmmod needs no file. Without an operator nobody could load such a module again.
	if err != nil && managed && ctx.Err() == nil {
		if now, stateErr := m.state(); stateErr == nil && now == absent {
			return nil
		}
		said, err = m.host(ctx, "rmmod", m.Name)
	}
	hung := (*hungError)(nil)
	switch {
	case errors.As(err, &hung):
		// It may come out after all, when nobody expects it.
		go func() {
			<-hung.ends
			if err := m.putIn(context.WithoutCancel(ctx), managed); err != nil {
				m.Logger.Error(err, "A kernel module that was hard to take out is out", "module", m.Name)
			}
		}()
		return fmt.Errorf("take out kernel module %s: %w", m.Name, err)
	case err == nil:
		return nil
	case ctx.Err() == nil && m.inUse():
		return fmt.Errorf("kernel module %s is %w (%s)", m.Name, gpu.ErrInUse, said)
	}
	return fmt.Errorf("take out kernel module %s: %w", m.Name, err)
}

// inUse tells whether something uses the module: opened device nodes, or other modules.
// The exit codes of modprobe and rmmod do not tell: they are 1 whatever is wrong.
func (m *Module) inUse() bool {
	text, err := m.ReadFile(path.Join("/sys/module", m.Name, "refcnt"))
	if err != nil {
		return false
	}
	count, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return err == nil && count > 0
}

// putIn puts the module in, whatever it takes.
func (m *Module) putIn(ctx context.Context, managed bool) error {
	try := m.load
	if managed {
		try = m.askManager
	}
	var err error
	for n := range loadTries {
		if n > 0 {
			m.Logger.Error(err, "A kernel module could not be put in, trying again", "module", m.Name, "try", n+1, "of", loadTries)
			if sleep.For(ctx, m.lookPause()) != nil {
				break
			}
		}
		if err = m.tryWithin(ctx, try); err == nil {
			return m.unmark()
		}
	}
	return fmt.Errorf("kernel module %s was taken out and could not be put in again in %d tries: %w; it is tried again as long as the plugin runs; look for %s in dmesg, or reboot the node",
		m.Name, loadTries, err, m.Name)
}

func (m *Module) tryWithin(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, m.loadPatience())
	defer cancel()
	return try(ctx)
}

// load has modprobe load the module.
func (m *Module) load(ctx context.Context) error {
	if _, err := m.host(ctx, "modprobe", m.Name); err != nil {
		return err
	}
	now, err := m.state()
	if err == nil && now != live {
		err = fmt.Errorf("modprobe %s ended well, and the module is not there", m.Name)
	}
	return err
}

// askManager has the manager load the module, and waits until it has.
func (m *Module) askManager(ctx context.Context) error {
	var asked error
	for {
		if now, err := m.state(); err == nil && now == live {
			return nil
		}
		if asked = m.Manager.PutIn(ctx); asked == nil {
			break
		}
		m.Logger.Error(asked, "Who manages a kernel module cannot be asked to load it, trying again", "module", m.Name)
		if err := sleep.For(ctx, m.lookPause()); err != nil {
			return errors.Join(asked, err)
		}
	}
	for {
		if now, err := m.state(); err == nil && now == live {
			return nil
		}
		if err := sleep.For(ctx, m.lookPause()); err != nil {
			return fmt.Errorf("who manages it was asked to load it and has not for %s: %w", m.loadPatience(), err)
		}
	}
}
