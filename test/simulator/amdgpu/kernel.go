package amdgpu

import (
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/disk"
)

// Options say where a simulated machine lives.
type Options struct {
	// Root is the folder for state and device nodes; it must be on a file system
	// that has those. Processes with the same root share the machine.
	Root string
	// Seed goes into the GPUs' numbers: give the node's name, and no two nodes of
	// a cluster have a GPU in common.
	Seed string
	// Sleep waits for the hardware; nil is time.Sleep. With another the device nodes
	// of a switch are there at once, unless a fault holds them back.
	Sleep func(time.Duration)
	// Now is the time; nil is time.Now.
	Now func() time.Time
	// Logf reports what no answer of a file can say, like a broken faults.yaml; nil
	// is log.Printf.
	Logf func(format string, args ...any)
}

// Kernel is the simulated kernel. It is safe for concurrent use.
type Kernel struct {
	inventory *models.Inventory
	root      string
	seed      string
	store     *disk.Store[state]
	faults    *disk.Faults[Faults]
	sleepFor  func(time.Duration)
	now       func() time.Time
	// nodesAfter is how long after the beginning of a switch the device nodes come.
	nodesAfter time.Duration
	// plainNodes is set once a device node could not be made.
	plainNodes atomic.Bool
	// unseen is set when the fault "in use" has refused an unload: its user is counted
	// once, and then gone.
	unseen atomic.Bool

	// mu protects the last tree and what it was made of.
	mu       sync.Mutex
	last     *tree
	state    *state
	stateID  disk.FileID
	faultsID disk.FileID
}

var _ sysfs.Files = (*Kernel)(nil)

// New opens the machine at the root, starting it if it is not running there, and
// makes its device nodes. A machine whose GPUs are other than the inventory's is
// taken for one that was switched off to change them.
func New(inv *models.Inventory, o Options) (*Kernel, error) {
	if o.Root == "" {
		return nil, errors.New("simulate AMD GPUs: Options.Root is empty: name a folder for the simulated machine")
	}
	root, err := filepath.Abs(o.Root)
	if err != nil {
		return nil, err
	}
	if root == "/" {
		return nil, errors.New("simulate AMD GPUs: Options.Root is /: name a folder of its own, the host's files are never touched")
	}
	if len(inv.AMD) == 0 {
		return nil, errors.New("simulate AMD GPUs: the inventory has none")
	}
	k := &Kernel{inventory: inv, root: root, seed: o.Seed, store: newStore(root), sleepFor: o.Sleep, now: o.Now}
	if k.sleepFor == nil {
		k.sleepFor = time.Sleep
		k.nodesAfter = inv.AMDDriver.Delays.SwitchMode + inv.AMDDriver.Delays.RenderNodes
	}
	if k.now == nil {
		k.now = time.Now
	}
	logf := o.Logf
	if logf == nil {
		logf = log.Printf
	}
	k.faults = &disk.Faults[Faults]{Path: faultsPath(root), Parse: ParseFaults, Report: func(err error) {
		logf("simulate AMD GPUs: %s: %v; the faults before it stay", faultsPath(root), err)
	}}
	if err := k.start(); err != nil {
		return nil, fmt.Errorf("simulated AMD GPUs in %s: %w", root, err)
	}
	return k, nil
}

// HasDeviceNodes says whether the nodes below dev are character devices. Only
// root can make those; without it they are empty files.
func (k *Kernel) HasDeviceNodes() bool { return !k.plainNodes.Load() }

// start opens the machine's state, or creates it at the first start. Another boot id means
// that the machine was restarted because of its other GPUs; another driver version, that the
// driver was reloaded.
func (k *Kernel) start() error {
	if err := os.MkdirAll(k.root, 0o755); err != nil {
		return err
	}
	return k.store.Update(func(st *state) (*state, error) {
		boot, err := disk.BootID(k.root)
		if err != nil {
			return nil, err
		}
		next := st
		switch {
		case st == nil || !k.sameGPUs(st):
			if next, err = k.firstState(st); err != nil {
				return nil, err
			}
			next.BootID = boot
		case st.BootID != boot:
			st.reboot(boot)
		case st.DriverVersion != k.inventory.AMDDriver.Version:
			st.reload()
		default:
			return nil, k.makeNodes(st)
		}
		next.DriverVersion = k.inventory.AMDDriver.Version
		return next, k.makeNodes(next)
	})
}

func (k *Kernel) sameGPUs(st *state) bool {
	return slices.EqualFunc(k.inventory.AMD, st.GPUs, func(c models.AMDGPU, s gpuState) bool {
		return c.PCI == s.PCI && c.Model.Key == s.Model && c.VF == s.VF && modes{c.ComputeMode, c.MemoryMode} == s.AtStart
	})
}

// firstState is the machine of the inventory. Numbers that only grow continue.
func (k *Kernel) firstState(old *state) (*state, error) {
	st := &state{Version: stateVersion}
	if old != nil {
		st.Loads, st.Generation, st.Serial = old.Loads, old.Generation, old.Serial
		if err := os.RemoveAll(filepath.Join(k.root, "dev")); err != nil {
			return nil, err
		}
	}
	majors, err := disk.FreeMajors("/proc/devices", firstOwnMajor+2)
	if err != nil {
		return nil, err
	}
	st.KFDMajor, st.DRMMajor = majors[firstOwnMajor], majors[firstOwnMajor+1]
	for _, c := range k.inventory.AMD {
		at := modes{c.ComputeMode, c.MemoryMode}
		st.GPUs = append(st.GPUs, gpuState{Model: c.Model.Key, PCI: c.PCI, VF: c.VF, AtStart: at, Now: at})
	}
	st.load()
	return st, nil
}

// firstOwnMajor leaves the first free numbers to the simulated NVIDIA driver of
// the same machine.
const firstOwnMajor = 3

func (k *Kernel) sleep(d time.Duration) {
	if d > 0 {
		k.sleepFor(d)
	}
}

// current is the tree of now.
func (k *Kernel) current() (*tree, error) {
	// First the faults, because a restart changes the state before it removes faults.
	faults, faultsID := k.faults.Read()
	st, stateID, err := k.store.ReadID()
	if err != nil {
		return nil, err
	}
	if st == nil {
		return nil, errNoState(k.root)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last == nil || k.stateID != stateID || k.faultsID != faultsID {
		v := k.view(st, faults)
		if gpus, ok := reselected(k.state, st); ok && k.faultsID == faultsID {
			k.last = v.reselect(k.last, gpus)
		} else {
			k.last = v.tree()
		}
		k.state, k.stateID, k.faultsID = st, stateID, faultsID
	}
	return k.last, nil
}

func errNoState(root string) error {
	return fmt.Errorf("no simulated AMD GPUs in %s: New makes them", root)
}

// find looks a file up.
func (k *Kernel) find(op, name string) (*file, *tree, string, error) {
	t, err := k.current()
	if err != nil {
		return nil, nil, "", &fs.PathError{Op: op, Path: name, Err: err}
	}
	real, f, err := t.resolve(name)
	if err == nil && k.now().Before(f.from) {
		err = unix.ENOENT
	}
	if err != nil {
		return nil, nil, "", &fs.PathError{Op: op, Path: name, Err: err}
	}
	return f, t, real, nil
}

// ReadFile returns the whole content.
func (k *Kernel) ReadFile(name string) ([]byte, error) {
	f, _, _, err := k.find("open", name)
	if err != nil {
		return nil, err
	}
	switch {
	case f.isDir():
		err = unix.EISDIR
	case f.err != 0:
		err = f.err
	case f.mode&fs.ModeDevice != 0:
		err = unix.ENXIO // there is no driver behind it
	case name == moduleDir+"/refcnt" && k.unseen.CompareAndSwap(true, false):
		return []byte("1\n"), nil
	default:
		return []byte(f.content), nil
	}
	return nil, &fs.PathError{Op: "read", Path: name, Err: err}
}

// ReadDir returns the names in a folder, sorted.
func (k *Kernel) ReadDir(name string) ([]string, error) {
	f, t, dir, err := k.find("open", name)
	if err != nil {
		return nil, err
	}
	if !f.isDir() {
		return nil, &fs.PathError{Op: "readdirent", Path: name, Err: unix.ENOTDIR}
	}
	now := k.now()
	names := make([]string, 0, len(f.children))
	for _, child := range f.children {
		if c := t.files[path.Join(dir, child)]; !now.Before(c.from) {
			names = append(names, child)
		}
	}
	return names, nil
}

// EvalSymlinks returns the path without symbolic links.
func (k *Kernel) EvalSymlinks(name string) (string, error) {
	_, _, real, err := k.find("lstat", name)
	return real, err
}

// Stat tells about a file, and about what a symbolic link leads to.
func (k *Kernel) Stat(name string) (sysfs.Info, error) {
	f, t, real, err := k.find("stat", name)
	if err != nil {
		return sysfs.Info{}, err
	}
	return sysfs.Info{Mode: f.mode, Inode: t.inode(real), Major: f.major, Minor: f.minor, GID: f.gid}, nil
}

// Lstat tells about a file, which no link leads to, and where it leads if it is a link.
func (k *Kernel) Lstat(name string) (info sysfs.Info, link string, err error) {
	t, err := k.current()
	if err != nil {
		return sysfs.Info{}, "", &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	f, ok := t.files[name]
	if !ok || k.now().Before(f.from) {
		return sysfs.Info{}, "", &fs.PathError{Op: "lstat", Path: name, Err: unix.ENOENT}
	}
	return sysfs.Info{Mode: f.mode, Inode: t.inode(name), Major: f.major, Minor: f.minor, GID: f.gid}, f.link, nil
}
