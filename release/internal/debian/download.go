package debian

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/release/image"
)

// mirrors are asked in this order. The second one keeps packages that newer ones have
// replaced.
var mirrors = []string{
	"http://deb.debian.org/debian/",
	"https://snapshot.debian.org/archive/debian/20261101T000000Z/",
}

const attempts = 3

// Download returns the content of the package from the user's cache, or from a mirror.
func (p Package) Download(ctx context.Context) ([]byte, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the folder for Debian packages (set HOME or XDG_CACHE_HOME): %w", err)
	}
	file := filepath.Join(cache, "tranche", "debian", p.SHA256+".deb")
	if content, err := os.ReadFile(file); err == nil && p.verify(content) == nil {
		return content, nil
	}
	content, err := p.fetch(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	return content, image.Atomically(file, func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(content))
		return err
	})
}

func (p Package) fetch(ctx context.Context) ([]byte, error) {
	var errs []error
	for try := range attempts {
		for _, mirror := range mirrors {
			content, err := get(ctx, mirror+strings.ReplaceAll(p.Path, "+", "%2B"))
			if err == nil {
				err = p.verify(content)
			}
			if err == nil {
				return content, nil
			}
			errs = append(errs, err)
		}
		if try == attempts-1 {
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
	return nil, fmt.Errorf("download Debian package %s %s: %w", p.Name, p.Version, errors.Join(errs[:len(mirrors)]...))
}

func get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return io.ReadAll(response.Body)
}

func (p Package) verify(content []byte) error {
	sum := sha256.Sum256(content)
	if found := hex.EncodeToString(sum[:]); found != p.SHA256 {
		return fmt.Errorf("package %s %s has checksum %s, not %s", p.Name, p.Version, found, p.SHA256)
	}
	return nil
}
