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
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/sleep"
)

const (
	// unloadPatience is how long unloading a driver may take. AMD's Device Config Manager
	// expects 30 s and allows 5 min (KMMDriverRecoveryUnloadTimeout and
	// KMMDriverRecoveryTimeout in ROCm/device-config-manager,
	// pkg/config_manager/globals/constants.go). After 120 s in one call, the kernel
	// reports a task as hung (hung_task_timeout_secs).
	unloadPatience = 100 * time.Second
	// loadPatience is how long one try to load the driver may take, which resets all GPUs.
	// The same program waits 5 min (KMMDriverRecoveryTimeout).
	loadPatience = 5 * time.Minute
	// loadTries is how often loading is tried.
	loadTries = 3
	// lookPause is the default of LookPause (KMMDriverRecoveryCheckInterval, ibid.).
	lookPause = 5 * time.Second
)

// Module is a kernel module of the host.
type Module struct {
	// Name is the name of the module, such as "amdgpu".
	Name string
	// Run runs a program of the host in the host's namespaces, and returns its output.
	// When ctx ends, it ends the program.
	Run func(ctx context.Context, program string, args ...string) ([]byte, error)
	// ReadFile reads a file by its path on the host, such as /sys/module/….
	ReadFile func(name string) ([]byte, error)
	// Manager loads the module instead of modprobe. Nil: there is none.
	Manager Manager
	// Marker is the path of a file that exists while the module is unloaded. It must not
	// outlive the plugin's data.
	Marker string
	// UnloadPatience and LoadPatience limit unloading, and each try to load; zero: 100 s
	// and 5 min.
	UnloadPatience, LoadPatience time.Duration
	// LookPause is the time between two checks of a module that Manager loads, and between
	// two tries; zero: 5 s.
	LookPause time.Duration
	// Logger logs failed tries. The zero value is silent.
	Logger klog.Logger
}

// Manager is another system that loads the module on this node.
type Manager interface {
	// Manages reports whether it loads the module on this node.
	Manages(ctx context.Context) (bool, error)
	// Load requests that the module is loaded again. It does not wait for that.
	Load(ctx context.Context) error
}

// Reload unloads the module and loads it again. A module in use is not unloaded; the error is
// gpu.ErrInUse. An unloaded module is loaded even if ctx has ended: then Reload returns later
// than ctx, by at most LoadPatience for each of three tries. If the module cannot be loaded,
// Resume or another Reload can try again.
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
	failed := m.unload(ctx, managed)
	if failed != nil {
		switch now := m.settle(ctx); now {
		case live:
			if hung := (*hungError)(nil); errors.As(failed, &hung) {
				return failed // unload loads it if it is unloaded later
			}
			return errors.Join(failed, m.unmark())
		case absent:
		default:
			return fmt.Errorf("%w; the kernel reports state %q for kernel module %s, neither loaded nor unloaded: reboot the node", failed, now, m.Name)
		}
	}
	return errors.Join(failed, m.load(context.WithoutCancel(ctx), managed))
}

// Resume loads the module if a Reload was interrupted after unloading it. Call it when the plugin
// starts, and while there is no driver. It fails while a Reload of this or another process is
// in progress.
func (m *Module) Resume(ctx context.Context) error {
	if _, err := os.Stat(m.Marker); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unlock, err := m.lock()
	if err != nil {
		return err
	}
	defer unlock()
	data, err := os.ReadFile(m.Marker)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var left marker
	if err == nil {
		if _, err = markerFormat.Decode(data, &left); !errors.As(err, new(*durable.NewerError)) {
			err = nil // modprobe loads a module whose marker is broken
		}
	}
	if err != nil {
		return fmt.Errorf("read whether kernel module %s was left unloaded: %w", m.Name, err)
	}
	return m.load(ctx, left.Managed)
}

// lock keeps other processes from loading or unloading the module. During a rolling update, two
// plugins run on the node, and the new one must not mistake the marker of the other's Reload for
// one that was left behind. The kernel releases the lock when a process dies.
func (m *Module) lock() (unlock func(), err error) {
	lock := flock.New(m.Marker + lockSuffix)
	switch locked, err := lock.TryLock(); {
	case err != nil:
		return nil, fmt.Errorf("lock kernel module %s with %s: %w", m.Name, lock, err)
	case !locked:
		return nil, fmt.Errorf("kernel module %s is being reloaded by another process, which holds %s", m.Name, lock)
	}
	return func() { lock.Close() }, nil
}

// lockSuffix is appended to the name of the marker.
const lockSuffix = ".lock"

type marker struct {
	// Managed: Manager loads the module. Otherwise modprobe does.
	Managed bool `json:"managed"`
}

var markerFormat = durable.Format{Version: 1, MinReader: 1}

func (m *Module) mark(managed bool) error {
	data, err := markerFormat.Encode(marker{Managed: managed}, nil)
	if err == nil {
		err = durable.WriteFile(m.Marker, data)
	}
	if err != nil {
		return fmt.Errorf("record that kernel module %s is unloaded: %w", m.Name, err)
	}
	return nil
}

func (m *Module) unmark() error {
	if err := os.Remove(m.Marker); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record that kernel module %s is loaded again: %w", m.Name, err)
	}
	return nil
}

func (m *Module) managed(ctx context.Context) (bool, error) {
	if m.Manager == nil {
		return false, nil
	}
	return m.Manager.Manages(ctx)
}

// state is the state of the module in the kernel: live, coming, going (Linux'
// kernel/module/sysfs.c, show_initstate), or empty if it is not loaded.
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
		return absent, fmt.Errorf("read whether kernel module %s is loaded: %w", m.Name, err)
	}
	return state(strings.TrimSpace(string(text))), nil
}

// settle waits until the module is either loaded or unloaded, and returns its state. A state that
// cannot be read counts as unloaded, because loading a loaded module does no harm.
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

// unload unloads the module if nothing uses it.
func (m *Module) unload(ctx context.Context, managed bool) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(m.UnloadPatience, unloadPatience))
	defer cancel()
	said, err := m.host(ctx, "modprobe", "-r", m.Name)
	// modprobe finds only modules in the host's folders, unlike those of an operator. rmmod
	// needs no file. Without an operator, nothing could load such a module again.
	if err != nil && managed && ctx.Err() == nil {
		if now, stateErr := m.state(); stateErr == nil && now == absent {
			return nil
		}
		said, err = m.host(ctx, "rmmod", m.Name)
	}
	hung := (*hungError)(nil)
	switch {
	case errors.As(err, &hung):
		// It may still be unloaded later.
		go func() {
			<-hung.ends
			if err := m.load(context.WithoutCancel(ctx), managed); err != nil {
				m.Logger.Error(err, "Cannot load a kernel module that was unloaded after its deadline", "module", m.Name)
			}
		}()
		return fmt.Errorf("unload kernel module %s: %w", m.Name, err)
	case err == nil:
		return nil
	case ctx.Err() == nil && m.inUse():
		return fmt.Errorf("kernel module %s is %w (%s)", m.Name, gpu.ErrInUse, said)
	}
	return fmt.Errorf("unload kernel module %s: %w", m.Name, err)
}

// inUse reports whether open device nodes or other modules use the module. The exit codes of
// modprobe and rmmod do not say: they are 1 for any failure.
func (m *Module) inUse() bool {
	text, _ := m.ReadFile(path.Join("/sys/module", m.Name, "refcnt")) // without the file: no number
	count, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return err == nil && count > 0
}

// load loads the module, in up to loadTries tries.
func (m *Module) load(ctx context.Context, managed bool) error {
	try := m.modprobe
	if managed {
		try = m.loadByManager
	}
	var err error
	for n := range loadTries {
		if n > 0 {
			m.Logger.Error(err, "Cannot load a kernel module, retrying", "module", m.Name, "try", n+1, "of", loadTries)
			if sleep.For(ctx, m.lookPause()) != nil {
				break
			}
		}
		if err = m.tryWithin(ctx, try); err == nil {
			return m.unmark()
		}
	}
	return fmt.Errorf("kernel module %s was unloaded and could not be loaded again in %d tries: %w; this is retried as long as the plugin runs; look for %s in dmesg, or reboot the node",
		m.Name, loadTries, err, m.Name)
}

func (m *Module) tryWithin(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, m.loadPatience())
	defer cancel()
	return try(ctx)
}

// modprobe loads the module with modprobe.
func (m *Module) modprobe(ctx context.Context) error {
	if _, err := m.host(ctx, "modprobe", m.Name); err != nil {
		return err
	}
	now, err := m.state()
	if err == nil && now != live {
		err = fmt.Errorf("modprobe %s reported success, but the module is not loaded", m.Name)
	}
	return err
}

// loadByManager requests the module from the manager, and waits until it is loaded.
func (m *Module) loadByManager(ctx context.Context) error {
	for {
		if now, err := m.state(); err == nil && now == live {
			return nil
		}
		failed := m.Manager.Load(ctx)
		if failed == nil {
			break
		}
		m.Logger.Error(failed, "Cannot request a kernel module from its manager, retrying", "module", m.Name)
		if err := sleep.For(ctx, m.lookPause()); err != nil {
			return errors.Join(failed, err)
		}
	}
	for {
		if now, err := m.state(); err == nil && now == live {
			return nil
		}
		if err := sleep.For(ctx, m.lookPause()); err != nil {
			return fmt.Errorf("its manager did not load it within %s: %w", m.loadPatience(), err)
		}
	}
}
