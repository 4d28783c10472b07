package debian

import (
	"fmt"
	"runtime"
)

// Package is a Debian package.
type Package struct {
	Name, Version, Architecture string
	// Path is that of the file below the root of a mirror.
	Path string
	// SHA256 is the checksum of the file, as the release's Packages file has it.
	SHA256 string
}

// GLIBC is the version of the C library. Programs that are linked with a newer one do
// not start.
const GLIBC = "2.36"

// runtimePackages are what programs with cgo need, and NVIDIA's driver library, which
// they load: Debian 12's C library and libgcc. To update them, take versions and
// checksums from dists/bookworm/main/binary-ARCH/Packages.xz of a mirror.
var runtimePackages = []Package{
	{
		Name: "libc6", Version: "2.36-9+deb12u14", Architecture: "amd64",
		Path:   "pool/main/g/glibc/libc6_2.36-9+deb12u14_amd64.deb",
		SHA256: "ba4f88f73dbc3ae9055f3c20f4523bfdbaf1ad13ff95e258924f77d20b4fbedf",
	},
	{
		Name: "libgcc-s1", Version: "12.2.0-14+deb12u1", Architecture: "amd64",
		Path:   "pool/main/g/gcc-12/libgcc-s1_12.2.0-14+deb12u1_amd64.deb",
		SHA256: "3016e62cb4b7cd8038822870601f5ed131befe942774d0f745622cc77d8a88f7",
	},
	{
		Name: "libc6", Version: "2.36-9+deb12u14", Architecture: "arm64",
		Path:   "pool/main/g/glibc/libc6_2.36-9+deb12u14_arm64.deb",
		SHA256: "01f4330719fd4f65580e16ea5a0527f372fca750e8f588d26deaf09f2d3b1cf4",
	},
	{
		Name: "libgcc-s1", Version: "12.2.0-14+deb12u1", Architecture: "arm64",
		Path:   "pool/main/g/gcc-12/libgcc-s1_12.2.0-14+deb12u1_arm64.deb",
		SHA256: "576926b283613db80168ddf76380a3bd877602778cf0d226caa7bfbfa71eacf3",
	},
}

// Runtime returns the packages of an architecture.
func Runtime(architecture string) ([]Package, error) {
	var found []Package
	for _, p := range runtimePackages {
		if p.Architecture == architecture {
			found = append(found, p)
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no C library is known for %s (this machine is %s): images are made for amd64 and arm64",
			architecture, runtime.GOARCH)
	}
	return found, nil
}

// PURL is the package URL of the package, for bills of materials.
func (p Package) PURL() string {
	return fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=debian-12", p.Name, p.Version, p.Architecture)
}
