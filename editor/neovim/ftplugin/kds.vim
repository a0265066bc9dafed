if exists('b:did_ftplugin')
  finish
endif
let b:did_ftplugin = 1
setlocal commentstring=#\ %s comments=:# shiftwidth=2 tabstop=2 expandtab textwidth=120
setlocal iskeyword=@,48-57,_,.
setlocal formatprg=kdsl\ fmt\ -
let b:undo_ftplugin = 'setlocal commentstring< comments< shiftwidth< tabstop< expandtab< textwidth< iskeyword< formatprg<'
