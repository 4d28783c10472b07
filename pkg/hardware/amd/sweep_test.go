package amd

import (
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
)

// nthFails is a host on which one call in a row fails.
type nthFails struct {
	sysfs.Files
	mu sync.Mutex
	// left is how many calls go well before the one that fails; below zero all do.
	left   int
	failed string
}

func (f *nthFails) call(op, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left--
	if f.left != -1 {
		return nil
	}
	f.failed = op + " " + name
	return &fs.PathError{Op: op, Path: name, Err: unix.EIO}
}

func (f *nthFails) ReadFile(name string) ([]byte, error) {
	if err := f.call("read", name); err != nil {
		return nil, err
	}
	return f.Files.ReadFile(name)
}

func (f *nthFails) WriteFile(name string, data []byte) error {
	if err := f.call("write", name); err != nil {
		return err
	}
	return f.Files.WriteFile(name, data)
}

func (f *nthFails) ReadDir(name string) ([]string, error) {
	if err := f.call("readdirent", name); err != nil {
		return nil, err
	}
	return f.Files.ReadDir(name)
}

func (f *nthFails) EvalSymlinks(name string) (string, error) {
	if err := f.call("lstat", name); err != nil {
		return "", err
	}
	return f.Files.EvalSymlinks(name)
}

func (f *nthFails) Stat(name string) (sysfs.Info, error) {
	if err := f.call("stat", name); err != nil {
		return sysfs.Info{}, err
	}
	return f.Files.Stat(name)
}

// full is a machine with one of every kind of file.
func full(g amdtest.GPU) *amdtest.Tree {
	files := amdtest.NewTree()
	files.Add(g)
	dir := sysfs.DevicesDir + "/" + paperAddress + "/"
	for name, text := range map[string]string{
		sysfs.ConfigModes: "SPX, CPX", sysfs.SelectorFile: "SPX", sysfs.ConfigDir + "/xcc/num_inst": "8", sysfs.ConfigDir + "/dec/num_inst": "4",
		"ras/umc_err_count": "ue: 0\nce: 1", "product_name": "AMD Instinct MI300X",
	} {
		files.Set(dir+name, text+"\n")
	}
	files.Set(sysfs.ProcessDir+"/4242/vram_24002", "4096\n")
	files.Set("/proc/4242/comm", "python3\n")
	obey(files)
	return files
}

// Whichever file fails in whatever call: the error names it, or it was one without
// which all the rest is told; and the next try works.
func TestEveryFileCanFail(t *testing.T) {
	// A GPU that lacks these is still a GPU.
	spared := []string{"/numa_node", "/comm", sysfs.ConfigDir, "lstat "}
	for name, test := range map[string]struct {
		gpu  amdtest.GPU
		call func(*Driver) (any, error)
	}{
		"inventory": {amdtest.MI300XCPX(), func(d *Driver) (any, error) { return d.Inventory(t.Context()) }},
		"live":      {amdtest.MI300XCPX(), func(d *Driver) (any, error) { return d.Live(t.Context(), paperAddress) }},
		"switch":    {amdtest.MI300XSPX(), func(d *Driver) (any, error) { return d.Create(t.Context(), paperPlacement("cpx", 3)) }},
		"no switch": {amdtest.MI300XCPX(), func(d *Driver) (any, error) { return d.Create(t.Context(), paperPlacement("cpx", 3)) }},
		"edits":     {amdtest.MI300XCPX(), func(d *Driver) (any, error) { return d.Edits(t.Context(), paperPlacement("cpx", 3)) }},
		"obstacles": {amdtest.MI300XCPX(), func(d *Driver) (any, error) { return d.Obstacles(t.Context(), paperAddress, false) }},
		"health":    {amdtest.MI300XCPX(), func(d *Driver) (any, error) { return nil, d.CheckHealth(t.Context(), paperAddress) }},
		"load":      {amdtest.MI300XCPX(), func(d *Driver) (any, error) { return d.LoadID() }},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := test.call(driverOn(t, full(test.gpu)))
			require.NoError(t, err)
			for n := 0; ; n++ {
				// Each failure is met twice: by a plugin that goes on, and by one
				// that is killed there.
				files := &nthFails{Files: full(test.gpu), left: n / 2}
				d := driverOn(t, files)
				got, err := test.call(d)
				if files.failed == "" {
					require.GreaterOrEqual(t, n, 6, "there was something to fail")
					require.NoError(t, err)
					return
				}
				switch {
				case err != nil:
					require.ErrorIs(t, err, unix.EIO, files.failed)
					_, path, _ := strings.Cut(files.failed, " ")
					require.ErrorContains(t, err, path)
				case !slices.ContainsFunc(spared, func(part string) bool { return strings.Contains(files.failed, part) }):
					require.Equal(t, want, got, files.failed)
				}
				if n%2 == 1 {
					d = driverOn(t, files)
				}
				again, err := test.call(d)
				require.NoError(t, err, "after %s", files.failed)
				require.Equal(t, want, again, "after %s", files.failed)
			}
		})
	}
}
