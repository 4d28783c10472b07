package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// preflight checks what the host must have, so that its lack is said in plain
// words and at once.
func (c *Cluster) preflight(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root, for namespaces and mounts: run this as root")
	}
	if missing := c.settings.Parts.Missing(); len(missing) > 0 {
		return fmt.Errorf("these parts are not built yet: %s: `cluster install` builds them, `cluster unpack` takes them from an archive", strings.Join(missing, "; "))
	}
	var lacks []error
	for namespace, option := range map[string]string{"net": "NET_NS", "pid": "PID_NS", "uts": "UTS_NS", "mnt": "NAMESPACES"} {
		if _, err := os.Stat("/proc/self/ns/" + namespace); err != nil {
			lacks = append(lacks, fmt.Errorf("the kernel has no %s namespaces (option CONFIG_%s)", namespace, option))
		}
	}
	for program, pkg := range map[string]string{"mount": "mount", "umount": "mount"} {
		if _, err := exec.LookPath(program); err != nil {
			lacks = append(lacks, fmt.Errorf("the program %s is missing (Debian package %s)", program, pkg))
		}
	}
	if _, err := cgroupRoots(); err != nil {
		lacks = append(lacks, err)
	}
	if err := loaderOf(ctx, c.settings.Parts.Program("runc")); err != nil {
		lacks = append(lacks, err)
	}
	return errors.Join(lacks...)
}

// loaderOf checks that runc, the one part with shared libraries, finds them.
func loaderOf(ctx context.Context, runc string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if output, err := exec.CommandContext(ctx, runc, "--version").CombinedOutput(); err != nil {
		return fmt.Errorf("runc does not run here (it needs the Debian package libseccomp2): %w: %s", err, strings.TrimSpace(string(output)))
	}
	return nil
}

var nodeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (o Options) validate() error {
	if o.APIOnly && len(o.Nodes) > 0 {
		return fmt.Errorf("the API server alone has no nodes, and %s was asked for", strings.Join(o.Nodes, ", "))
	}
	if len(o.Nodes) == 0 && !o.APIOnly {
		return errors.New("a cluster needs at least one node")
	}
	if len(o.Nodes) > maxNodes {
		return fmt.Errorf("%d nodes are too many: there are addresses for %d", len(o.Nodes), maxNodes)
	}
	for i, name := range o.Nodes {
		if !nodeName.MatchString(name) || name == controlPlane {
			return fmt.Errorf("node name %q: it must be lower-case letters, digits and -, and not %q", name, controlPlane)
		}
		if slices.Contains(o.Nodes[:i], name) {
			return fmt.Errorf("node name %q is given twice", name)
		}
	}
	_, err := parseGates(o.Gates)
	return err
}

// snapshotter tells how containerd lays images over each other on the node:
// by overlayfs, or by copies where the cluster's folder cannot be an overlay's
// writable layer, as inside a container.
func (n node) snapshotter() string {
	var stat unix.Statfs_t
	if err := unix.Statfs(n.dir, &stat); err == nil && stat.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return "native"
	}
	return "overlayfs"
}

// logTail returns the end of a log, for an error message.
func logTail(file string, count int) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	tail := lines[max(0, len(lines)-count):]
	return fmt.Sprintf("the end of %s:\n  %s", filepath.Base(file), strings.Join(tail, "\n  "))
}
