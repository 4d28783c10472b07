package inventory

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// uids matches the UIDs of pods: those of the API server, and of static pods.
var uids = regexp.MustCompile(`^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})$`)

// PodGroup returns the control group of the pod that a control group belongs to, by their paths from
// the root of all, and the UID of the pod. Both are empty if it belongs to none. Containers can make
// groups of any name below their own, so the first name counts.
func PodGroup(group string) (pod string, uid types.UID) {
	at := "/"
	for name := range strings.SplitSeq(strings.Trim(group, "/"), "/") {
		at = path.Join(at, name)
		if uid := podOfGroup(name); uids.MatchString(uid) {
			return at, types.UID(uid)
		}
	}
	return "", ""
}

// PodGroups returns the folders of the control groups of all pods on this node. root is the folder of
// the root of all groups, of cgroup v2.
func PodGroups(root string) (map[types.UID]string, error) {
	found := map[types.UID]string{}
	err := filepath.WalkDir(root, func(folder string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && folder != root:
			return nil // the group was removed meanwhile
		case err != nil:
			return err
		case !entry.IsDir():
			return nil
		}
		if uid := podOfGroup(entry.Name()); uids.MatchString(uid) {
			found[types.UID(uid)] = folder
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for the control groups of pods: %w", err)
	}
	return found, nil
}
