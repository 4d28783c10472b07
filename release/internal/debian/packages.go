package debian

import (
	"fmt"
	"runtime"
)

// Package is a Debian package.
type Package struct {
	Name, Version, Architecture string
	// Texts says that it has nothing but texts of licences, to which the others refer.
	Texts bool
	// Path is that of the file below the root of a mirror.
	Path string
	// SHA256 is the checksum of the file, as the release's Packages file has it.
	SHA256 string
}

// GLIBC is the version of the C library. Programs that are linked with a newer one do
// not start.
const GLIBC = "2.36"

// runtimePackages are what programs with cgo need, and NVIDIA's driver library, which
// they load: Debian 12's C library and libgcc; and their licences. To update them, take versions and
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
		Name: "gcc-12-base", Version: "12.2.0-14+deb12u1", Architecture: "amd64", Texts: true,
		Path:   "pool/main/g/gcc-12/gcc-12-base_12.2.0-14+deb12u1_amd64.deb",
		SHA256: "1896a2aacf4ad681ff5eacc24a5b0ca4d5d9c9b9c9e4b6de5197bc1e116ea619",
	},
	{
		Name: "base-files", Version: "12.4+deb12u15", Architecture: "amd64", Texts: true,
		Path:   "pool/main/b/base-files/base-files_12.4+deb12u15_amd64.deb",
		SHA256: "3eb1ea6d85488f488cc2a163b98ad640ef88cee4c79287cf14e361aaf6206f47",
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
	{
		Name: "gcc-12-base", Version: "12.2.0-14+deb12u1", Architecture: "arm64", Texts: true,
		Path:   "pool/main/g/gcc-12/gcc-12-base_12.2.0-14+deb12u1_arm64.deb",
		SHA256: "674cf6cba6d432bd200c45fe866c1652c7a53523cc2e7a613e05bc4abf7b5440",
	},
	{
		Name: "base-files", Version: "12.4+deb12u15", Architecture: "arm64", Texts: true,
		Path:   "pool/main/b/base-files/base-files_12.4+deb12u15_arm64.deb",
		SHA256: "b1272fbdc197f7d5bd22c05b741a03840f8bec66ca68c8d797f567ff2c99d42d",
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
