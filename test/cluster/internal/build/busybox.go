package build

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"

	"github.com/tranche-dev/tranche/release/image"
)

// busyboxImage is an image like Docker's busybox from a statically linked
// busybox binary of the host.
func busyboxImage(ctx context.Context, binary string) (image.Spec, error) {
	list, err := exec.CommandContext(ctx, binary, "--list-full").Output()
	if err != nil {
		return image.Spec{}, fmt.Errorf("list the applets of %s: %w", binary, err)
	}
	spec := image.Spec{
		Command: []string{"sh"},
		Entries: append(baseFiles(), image.Entry{Path: "/bin/busybox", Source: binary, Mode: 0o755}),
	}
	for _, applet := range strings.Fields(string(list)) {
		if applet := path.Join("/", applet); applet != "/bin/busybox" {
			spec.Entries = append(spec.Entries, image.Entry{Path: applet, Link: "/bin/busybox"})
		}
	}
	// Docker's image has all applets in /bin: what is written for it works.
	for _, entry := range spec.Entries {
		if entry.Link != "" {
			spec.Entries = append(spec.Entries, image.Entry{Path: "/bin/" + path.Base(entry.Path), Link: "/bin/busybox"})
		}
	}
	return spec, nil
}

// pauseImage is the image of a pod sandbox from a statically linked binary.
func pauseImage(binary string) image.Spec {
	return image.Spec{
		Entrypoint: []string{"/pause"},
		User:       "65535:65535",
		Entries:    []image.Entry{{Path: "/pause", Source: binary, Mode: 0o755}},
	}
}

// baseFiles are the users and folders that a program expects of any system.
func baseFiles() []image.Entry {
	users := bytes.NewBufferString("root:x:0:0:root:/root:/bin/sh\n")
	users.WriteString("daemon:x:1:1:daemon:/usr/sbin:/bin/false\n")
	users.WriteString("nobody:x:65534:65534:nobody:/home:/bin/false\n")
	return []image.Entry{
		{Path: "/etc/passwd", Data: users.Bytes()},
		{Path: "/etc/group", Data: []byte("root:x:0:\ndaemon:x:1:\nnobody:x:65534:\n")},
		image.Dir("/root", 0o700), image.Dir("/home", 0o755), image.Dir("/var", 0o755),
		image.Dir("/tmp", 0o777|os.ModeSticky),
	}
}
