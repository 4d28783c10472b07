package image

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"
)

// Busybox returns an image like Docker's busybox from a statically linked
// busybox binary of the host.
func Busybox(ctx context.Context, binary string, tags ...string) (Spec, error) {
	list, err := exec.CommandContext(ctx, binary, "--list-full").Output()
	if err != nil {
		return Spec{}, fmt.Errorf("list the applets of %s: %w", binary, err)
	}
	spec := Spec{
		Tags:    tags,
		Command: []string{"sh"},
		Entries: append(baseFiles(), Entry{Path: "/bin/busybox", Source: binary, Mode: 0o755}),
	}
	for _, applet := range strings.Fields(string(list)) {
		if applet := path.Join("/", applet); applet != "/bin/busybox" {
			spec.Entries = append(spec.Entries, Entry{Path: applet, Link: "/bin/busybox"})
		}
	}
	// Docker's image has all applets in /bin: what is written for it works.
	for _, entry := range spec.Entries {
		if entry.Link != "" {
			spec.Entries = append(spec.Entries, Entry{Path: "/bin/" + path.Base(entry.Path), Link: "/bin/busybox"})
		}
	}
	return spec, nil
}

// Pause returns the image of a pod sandbox from a statically linked binary.
func Pause(binary string, tags ...string) Spec {
	return Spec{
		Tags:       tags,
		Entrypoint: []string{"/pause"},
		User:       "65535:65535",
		Entries:    []Entry{{Path: "/pause", Source: binary, Mode: 0o755}},
	}
}

// baseFiles are the users and folders that a program expects of any system.
func baseFiles() []Entry {
	users := bytes.NewBufferString("root:x:0:0:root:/root:/bin/sh\n")
	users.WriteString("daemon:x:1:1:daemon:/usr/sbin:/bin/false\n")
	users.WriteString("nobody:x:65534:65534:nobody:/home:/bin/false\n")
	return []Entry{
		{Path: "/etc/passwd", Data: users.Bytes()},
		{Path: "/etc/group", Data: []byte("root:x:0:\ndaemon:x:1:\nnobody:x:65534:\n")},
		Dir("/root", 0o700), Dir("/home", 0o755), Dir("/var", 0o755),
		Dir("/tmp", 0o777|os.ModeSticky),
	}
}
