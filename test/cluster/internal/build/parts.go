package build

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/tranche-dev/tranche/release/image"
)

// part is something to build: it makes its files in a folder that is then
// moved into the installation.
type part struct {
	name string
	// files are what the installation has in the end, relative to it.
	files []string
	build func(ctx context.Context, job job) error
}

// job is the circumstances under which a part is built.
type job struct {
	source  string // folder of this Go module
	out     string // where the part's files belong, laid out as the installation
	install Dir    // the installation, with the parts before this one
}

// components are the names under which the one Kubernetes program is installed.
var components = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet"}

// Optional returns the names of the parts that are built only on request.
func Optional() (names []string) {
	for _, p := range projects {
		names = append(names, p.name)
	}
	return names
}

// parts are the parts that every cluster needs and the named optional ones, in the order
// in which they need each other.
func parts(optional ...string) []part {
	all := []part{
		{"Kubernetes " + Kubernetes() + " and etcd", append(in("bin", components...), "bin/kubernetes"), buildKubernetes},
		{"containerd " + Containerd, in("bin", "containerd", "containerd-shim-runc-v2", "ctr"), buildContainerd},
		{"CNI plugins " + CNIPlugins, in("cni", "ptp", "loopback", "host-local"), buildCNI},
		{"helm " + Helm, in("bin", "helm"), buildHelm},
		{"runc and busybox (Debian packages, unpacked only)", in("bin", "runc", "busybox"), unpackDebian},
		{"images pause and busybox", in("images", "pause.tar", "busybox.tar"), buildImages},
	}
	for _, p := range projects {
		if slices.Contains(optional, p.name) {
			all = append(all, p.part())
		}
	}
	return all
}

func in(folder string, names ...string) []string {
	var files []string
	for _, name := range names {
		files = append(files, filepath.Join(folder, name))
	}
	return files
}

// WriteSchedulerImage writes an archive with an image of the cluster's kube-scheduler that has the
// name and the path of upstream's.
func (d Dir) WriteSchedulerImage(file string) error {
	return image.Write(file, image.Spec{Entries: []image.Entry{
		{Path: "/usr/local/bin/kube-scheduler", Source: d.Program("kubernetes"), Mode: 0o755},
	}}, "registry.k8s.io/kube-scheduler:"+Kubernetes())
}

func buildContainerd(ctx context.Context, job job) error {
	const commands = "github.com/containerd/containerd/v2/cmd/"
	const version = " -X github.com/containerd/containerd/v2/version.Version="
	return goInstall(ctx, filepath.Join(job.out, "bin"), Containerd,
		[]string{"-tags", "no_btrfs no_zfs no_devmapper", "-ldflags", "-s -w" + version + Containerd},
		commands+"containerd", commands+"containerd-shim-runc-v2", commands+"ctr")
}

func buildCNI(ctx context.Context, job job) error {
	const plugins = "github.com/containernetworking/plugins/plugins/"
	return goInstall(ctx, filepath.Join(job.out, "cni"), CNIPlugins, []string{"-ldflags", "-s -w"},
		plugins+"main/ptp", plugins+"main/loopback", plugins+"ipam/host-local")
}

func buildHelm(ctx context.Context, job job) error {
	return goInstall(ctx, filepath.Join(job.out, "bin"), Helm,
		[]string{"-ldflags", "-s -w -X helm.sh/helm/v4/internal/version.version=" + Helm}, "helm.sh/helm/v4/cmd/helm")
}

func buildImages(ctx context.Context, job job) error {
	pause := filepath.Join(job.out, "pause")
	if err := goCommand(ctx, job.source, nil, "build", "-ldflags", "-s -w", "-o", pause, "./cmd/pause"); err != nil {
		return err
	}
	defer os.Remove(pause)
	busybox, err := busyboxImage(ctx, job.install.Program("busybox"))
	if err != nil {
		return err
	}
	images := filepath.Join(job.out, "images")
	if err := image.Write(filepath.Join(images, "pause.tar"), pauseImage(pause), PauseImage); err != nil {
		return err
	}
	return image.Write(filepath.Join(images, "busybox.tar"), busybox, BusyboxImage)
}

func goInstall(ctx context.Context, bin, version string, flags []string, packages ...string) error {
	args := append([]string{"install"}, flags...)
	for _, pkg := range packages {
		args = append(args, pkg+"@"+version)
	}
	if err := goCommand(ctx, "/", []string{"GOBIN=" + bin}, args...); err != nil {
		return fmt.Errorf("%s %s: %w", packages[0], version, err)
	}
	return nil
}
