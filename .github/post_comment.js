// Posts the text of `treegen diff` under a pull request, or replaces its earlier comment. The text comes from the pull
// request's own code: it is read as data, cut, and mentions nobody.
const fs = require('fs');
const MARK = '<!-- treegen diff -->';
const LIMIT = 60000;  // characters; GitHub takes 65,536

function read(path) {
  if (!fs.existsSync(path) || !fs.lstatSync(path).isFile()) return '';
  const bytes = Buffer.alloc(4 * LIMIT);
  const file = fs.openSync(path, 'r');
  const length = fs.readSync(file, bytes, 0, bytes.length, 0);
  fs.closeSync(file);
  return bytes.toString('utf8', 0, length);
}

// folder: holds comment.md and status, the exit code of `treegen diff`. number: of the pull request. run: the address of the run.
module.exports = async ({github, context, folder, number, run}) => {
  let text = read(`${folder}/comment.md`).replaceAll('@', '@\u200b');
  if (!['0', '1'].includes(read(`${folder}/status`).trim()) || !text.trim()) {
    text = '`treegen diff` could not compare the heuristics; the log of the run says why.';
  }
  if (text.length > LIMIT) text = text.slice(0, LIMIT).replace(/[\ud800-\udbff]$/, '') + '\n\n(cut here)';
  const body = `${MARK}\n${text}\n\n<sub>Written by this pull request's own code in [this run](${run}).</sub>`;

  const issue = {...context.repo, issue_number: number};
  const comments = await github.paginate(github.rest.issues.listComments, {...issue, per_page: 100});
  const mine = comments.find(one => one.user.type === 'Bot' && one.body.startsWith(MARK));
  if (mine) {
    await github.rest.issues.updateComment({...context.repo, comment_id: mine.id, body});
  } else {
    await github.rest.issues.createComment({...issue, body});
  }
};
