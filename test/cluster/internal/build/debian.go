package build

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// packages are the Debian packages from which programs are taken. They are
// downloaded and unpacked, never installed: to install runc would remove the
// container engine of a host that has Docker's.
var packages = map[string]string{ // package → program in it
	"runc":           "usr/sbin/runc",
	"busybox-static": "bin/busybox",
}

func unpackDebian(ctx context.Context, job job) error {
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing: runc and busybox come from the Debian packages runc and busybox-static, "+
				"so the parts must be built on Debian or Ubuntu (elsewhere, use `cluster unpack` with an archive made there)", tool)
		}
	}
	for pkg, program := range packages {
		if err := unpackProgram(ctx, job.out, pkg, program); err != nil {
			return err
		}
	}
	return nil
}

func unpackProgram(ctx context.Context, out, pkg, program string) error {
	work, err := os.MkdirTemp(out, pkg+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := download(ctx, work, pkg); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("apt-get download %s left %d packages, not one", pkg, len(files))
	}
	root := filepath.Join(work, "root")
	if err := run(ctx, work, nil, "dpkg-deb", "-x", files[0], root); err != nil {
		return err
	}
	return os.Rename(filepath.Join(root, program), filepath.Join(out, "bin", filepath.Base(program)))
}

// download fetches a package. Package lists that are missing or too old are
// brought up to date once.
func download(ctx context.Context, dir, pkg string) error {
	// Without this, apt-get as root warns that its own user cannot write here.
	args := []string{"-o", "APT::Sandbox::User=root", "download", pkg}
	if run(ctx, dir, nil, "apt-get", args...) == nil {
		return nil
	}
	if err := run(ctx, dir, nil, "apt-get", "update"); err != nil {
		return fmt.Errorf("update the package lists to download %s: %w", pkg, err)
	}
	return run(ctx, dir, nil, "apt-get", args...)
}
